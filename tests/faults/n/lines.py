"""A line to a store that rules of a `FaultProxy` spoil: a folder, S3 before it, the proxy before that."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from gangline.launch.faults.gateway import Gateway
from gangline.launch.faults.proxy import FaultProxy
from gangline.launch.faults.rules import Rule
from gangline.storage.local import FolderStore
from gangline.storage.open import open_store
from gangline.storage.protocol import ObjectStore


@dataclass(frozen=True)
class Line:
    folder: FolderStore
    """What the line leads to, seen without it."""
    gateway: Gateway
    proxy: FaultProxy

    def store(self, *, deadline_seconds: float) -> ObjectStore:
        url = Gateway.url(self.proxy.port)
        return open_store(url, credentials=self.gateway.credentials, deadline_seconds=deadline_seconds)


@contextmanager
def line_to_a_store(folder, *rules: Rule, seed: int = 0) -> Iterator[Line]:
    store = FolderStore(folder / "store")
    with Gateway(store) as gateway, FaultProxy("127.0.0.1", gateway.port, rules=rules, seed=seed) as proxy:
        yield Line(store, gateway, proxy)
