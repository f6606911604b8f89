"""What a drill changes of a gang before it starts, and how it strikes then.

Most change nothing: they strike processes that run. Some need a fault inside a rank, a gang of two nodes, or a way to
the store that can be closed; those take a run of their own.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from gangline.errors import ConfigError, UsageError
from gangline.launch.faults.gateway import Gateway
from gangline.launch.faults.nodes import lose_node
from gangline.launch.faults.proxy import FaultProxy
from gangline.launch.local import LocalLauncher
from gangline.launch.local.folder import GangFolder
from gangline.launch.protocol import Gang
from gangline.launch.sandbox import Sandbox
from gangline.line import launchers, places
from gangline.line.drill.aim import Aim, Wish
from gangline.line.drill.inject import inject
from gangline.line.drill.outage import Outage
from gangline.line.launchers import OpenLauncher
from gangline.line.trust import Rights
from gangline.spec.codec import canonical
from gangline.spec.plan import Plan
from gangline.spec.podset import PodSet
from gangline.spec.record import gang_prefix, run_prefix
from gangline.spec.site import Site
from gangline.storage.blobs import get_blob
from gangline.storage.open import open_store
from gangline.storage.protocol import ObjectStore

STRUCK_FILE = "struck.json"
"""What a rank writes that is struck from within; layout in `train.struck`, which rooms above do not import."""
NODES = 2
_WITHIN_SECONDS = 300.0
"""For a step to come to the point where it is struck from within."""


class Rig(Protocol):
    @property
    def secrets(self) -> Mapping[str, bytes]:
        """Values behind names in the podset that win over the site's."""
        ...

    def change(self, podset: PodSet, store: ObjectStore) -> PodSet:
        """The gang of the run's own training as it is to start; equal for equal podsets. Raises ConfigError."""
        ...

    def strike(self, home: Path, aim: Aim) -> float:
        """Strike; when that was, on the monotonic clock. Raises UsageError where there is nothing to strike."""
        ...


@dataclass(frozen=True, slots=True)
class Plain:
    """Changes nothing and strikes what runs."""

    secrets: Mapping[str, bytes] = field(default_factory=dict)

    def change(self, podset: PodSet, store: ObjectStore) -> PodSet:
        del store
        return podset

    def strike(self, home: Path, aim: Aim) -> float:
        mono = time.monotonic()
        inject(home, aim)
        return mono


@dataclass(frozen=True, slots=True)
class Within:
    """Gives the gang's first attempt a task with one fault in it."""

    wish: Wish
    secrets: Mapping[str, bytes] = field(default_factory=dict)

    def change(self, podset: PodSet, store: ObjectStore) -> PodSet:
        if podset.name != podset.run:
            return podset
        aim = self.wish.aim(Plan.from_json(get_blob(store, podset.plan)))
        order = {"kind": aim.kind.name, "rank": aim.rank, "step": aim.step}
        return replace(podset, env=podset.env | {"GANGLINE_STRIKE": canonical(order).decode()})

    def strike(self, home: Path, aim: Aim) -> float:
        patience, folder = time.monotonic() + _WITHIN_SECONDS, GangFolder(home)
        while (told := folder.read_inside(folder.inside / STRUCK_FILE)) is None:
            if folder.end(0) is not None or time.monotonic() > patience:
                raise UsageError(f"rank {aim.rank} did not come to step {aim.step + 1}")
            time.sleep(0.02)
        return float(json.loads(told)["mono"])


@dataclass(frozen=True, slots=True)
class Nodes:
    """Starts the gang as two virtual nodes, and takes one of them away."""

    secrets: Mapping[str, bytes] = field(default_factory=dict)

    def change(self, podset: PodSet, store: ObjectStore) -> PodSet:
        del store
        if podset.num_nodes > 1:
            return podset
        if podset.procs_per_node % NODES:
            raise ConfigError(
                f"drill lose-node is refused: {podset.procs_per_node} ranks are no two equal nodes; "
                "train.ranks = 2 in line.toml works"
            )
        per_node = podset.procs_per_node // NODES
        gpus = podset.resources.gpus // NODES
        return replace(podset, num_nodes=NODES, procs_per_node=per_node, resources=replace(podset.resources, gpus=gpus))

    def strike(self, home: Path, aim: Aim) -> float:
        mono = time.monotonic()
        lose_node(home, aim.rank // GangFolder(home).podset().procs_per_node)
        return mono


@dataclass(frozen=True, slots=True)
class Served:
    """Lets the gang reach the run's store by way of a server that the drill can take away."""

    gateway: Gateway
    proxy: FaultProxy
    outage: Outage

    @property
    def secrets(self) -> Mapping[str, bytes]:
        return {launchers.STORE_CREDENTIALS: self.gateway.credentials.encode()}

    def change(self, podset: PodSet, store: ObjectStore) -> PodSet:
        del store
        names = dict.fromkeys((*podset.secrets, launchers.STORE_CREDENTIALS))
        return replace(podset, store=Gateway.url(self.proxy.port), secrets=tuple(names))

    def strike(self, home: Path, aim: Aim) -> float:
        podset = GangFolder(home).podset()
        assert aim.seconds is not None, "a store comes back"
        below = f"{gang_prefix(run_prefix(podset.project, podset.commit, podset.run))}/checkpoints/"
        return self.outage.begin(aim.kind.name, seconds=aim.seconds, below=below)


@contextmanager
def rigged(wish: Wish, store: ObjectStore) -> Iterator[Rig]:
    """The rig of a drill in a run of its own; what it started ends with the block.

    Raises:
        ConfigError: This installation lacks what it needs.
    """
    if wish.kind.rig in ("task", "nodes", ""):
        makers: dict[str, Callable[[], Rig]] = {"task": lambda: Within(wish), "nodes": Nodes, "": Plain}
        yield makers[wish.kind.rig]()
        return
    with Gateway(store) as gateway, FaultProxy("127.0.0.1", gateway.port, seed=wish.seed) as proxy:
        _try(gateway, proxy)
        outage = Outage(gateway, proxy)
        try:
            yield Served(gateway, proxy, outage)
        finally:
            outage.end()


def opening(rig: Rig) -> OpenLauncher:
    """Opens the launcher of this machine with `rig` at its door; arguments of `launchers.open_launcher`."""

    def open_rigged(
        repo: Path, *, site: Site, environ: Mapping[str, str], store: ObjectStore, rights: Rights | None = None,
        **_: object,
    ) -> LocalLauncher:  # fmt: skip
        read = launchers.secret_reader(store, site, environ, rights)

        def secrets(name: str) -> bytes:
            return rig.secrets[name] if name in rig.secrets else read(name)

        return _Rigged(
            rig, launchers.gangs_root(repo), store, secrets=secrets, targets=places.targets(repo, site),
            sandbox=launchers.gang_sandbox(repo, rights, site=site, environ=environ),
        )  # fmt: skip

    return open_rigged


class _Rigged(LocalLauncher):
    def __init__(
        self, rig: Rig, root: Path, store: ObjectStore, *, secrets: Callable[[str], bytes], targets: Path,
        sandbox: Sandbox | None,
    ) -> None:  # fmt: skip
        super().__init__(root, store=store, secrets=secrets, targets=targets, sandbox=sandbox)
        self._rig, self._all = rig, store

    def submit(self, podset: PodSet) -> Gang:
        return super().submit(self._rig.change(podset, self._all) if podset.role == "train" else podset)


def _try(gateway: Gateway, proxy: FaultProxy) -> None:
    """Ranks will speak S3. Raises ConfigError where they cannot."""
    open_store(Gateway.url(proxy.port), credentials=gateway.credentials).list("", limit=1)
