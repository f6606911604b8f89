"""A line to a store that rules of a `FaultProxy` spoil: a folder, S3 before it, the proxy before that."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from gangline.faults.proxy import FaultProxy, FaultRule
from gangline.faults.s3_gateway import S3Gateway
from gangline.storage.folder.store import FolderStore
from gangline.storage.objects.protocol import ObjectStore
from gangline.storage.open import open_store


@dataclass(frozen=True)
class Line:
    folder: FolderStore
    """What the line leads to, seen without it."""
    gateway: S3Gateway
    proxy: FaultProxy

    def store(self, *, deadline_seconds: float) -> ObjectStore:
        url = S3Gateway.url(self.proxy.port)
        return open_store(url, credentials=self.gateway.credentials, deadline_seconds=deadline_seconds)


@contextmanager
def line_to_a_store(folder, *rules: FaultRule, seed: int = 0) -> Iterator[Line]:
    store = FolderStore(folder / "store")
    with S3Gateway(store) as gateway, FaultProxy("127.0.0.1", gateway.port, rules=rules, seed=seed) as proxy:
        yield Line(store, gateway, proxy)
