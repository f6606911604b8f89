"""Setup of a drill: what it changes of a gang before the start, and how it injects its fault.

Most drills change nothing and signal running processes. Some need a fault inside a rank, a gang of two nodes, or a
store behind a proxy that can fail for a while; those get a run of their own.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from gangline.drill.fault_actions import apply_fault
from gangline.drill.target import DrillRequest, DrillTarget
from gangline.errors import ConfigError, UsageError
from gangline.faults.process_faults import lose_node
from gangline.faults.proxy import FaultProxy
from gangline.faults.rules import FaultRule
from gangline.faults.s3_gateway import S3Gateway
from gangline.launch.local import LocalLauncher
from gangline.launch.local.folder import GangFolder
from gangline.launch.protocol import Gang
from gangline.launch.sandbox import Sandbox
from gangline.line.gangs import launchers
from gangline.line.gangs.launchers import OpenLauncher
from gangline.line.request.trust import Rights
from gangline.spec.codec import canonical
from gangline.spec.config.site import Site
from gangline.spec.gang.podset import PodSet
from gangline.spec.plan import Plan
from gangline.spec.record import gang_prefix, run_prefix
from gangline.storage import site_paths
from gangline.storage.objects.blobs import get_blob
from gangline.storage.objects.protocol import ObjectStore
from gangline.storage.open import open_store

REFUSED_SHARE = 0.7
"""Of the time that a killed store is away nobody listens; then it answers 503, as a server does that starts."""
SLOW_SECONDS = 0.25
"""Added to every request to a slow store."""


class StoreOutage:
    """At most one; ends at its time, or with `end`."""

    def __init__(self, gateway: S3Gateway, proxy: FaultProxy) -> None:
        self._gateway, self._proxy = gateway, proxy
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, name: str, *, seconds: float, below: str) -> float:
        """Strike by the drill's `name`, for `seconds`, keys `below` where only those are struck; when that was."""
        mono = time.monotonic()
        run = {"kill-store": self._kill, "slow-store": self._slow, "fill-disk": self._fill}[name]
        self._thread = threading.Thread(target=run, args=(seconds, below), name=name, daemon=True)
        self._thread.start()
        return mono

    def end(self) -> None:
        """Nothing stands before the store any more."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _kill(self, seconds: float, below: str) -> None:
        del below
        self._proxy.shut()
        self._over.wait(REFUSED_SHARE * seconds)
        self._proxy.set_rules(FaultRule(action="answer", status=503, retry_after_seconds=1, probability=1.0))
        self._proxy.open()
        self._over.wait((1 - REFUSED_SHARE) * seconds)
        self._proxy.set_rules()

    def _slow(self, seconds: float, below: str) -> None:
        del below
        self._proxy.set_rules(FaultRule(action="delay", seconds=SLOW_SECONDS, probability=1.0))
        self._over.wait(seconds)
        self._proxy.set_rules()

    def _fill(self, seconds: float, below: str) -> None:
        self._gateway.fill(below)
        self._over.wait(seconds)
        self._gateway.fill(None)


INJECTED_FILE = "struck.json"
"""What a rank writes that is struck from within; layout in `train.struck`, which rooms above do not import."""
NODES = 2
_WITHIN_SECONDS = 300.0
"""For a step to come to the point where it is struck from within."""


class DrillSetup(Protocol):
    @property
    def secrets(self) -> Mapping[str, bytes]:
        """Values behind names in the podset that win over the site's."""
        ...

    def change(self, podset: PodSet, store: ObjectStore) -> PodSet:
        """The gang of the run's own training as it is to start; equal for equal podsets. Raises ConfigError."""
        ...

    def strike(self, home: Path, aim: DrillTarget) -> float:
        """Strike; when that was, on the monotonic clock. Raises UsageError where there is nothing to strike."""
        ...


@dataclass(frozen=True, slots=True)
class NoSetup:
    """Changes nothing and strikes what runs."""

    secrets: Mapping[str, bytes] = field(default_factory=dict)

    def change(self, podset: PodSet, store: ObjectStore) -> PodSet:
        del store
        return podset

    def strike(self, home: Path, aim: DrillTarget) -> float:
        mono = time.monotonic()
        apply_fault(home, aim)
        return mono


@dataclass(frozen=True, slots=True)
class FaultInRank:
    """Gives the gang's first attempt a task with one fault in it."""

    wish: DrillRequest
    secrets: Mapping[str, bytes] = field(default_factory=dict)

    def change(self, podset: PodSet, store: ObjectStore) -> PodSet:
        if podset.name != podset.run:
            return podset
        aim = self.wish.aim(Plan.from_json(get_blob(store, podset.plan)))
        order = {"kind": aim.kind.name, "rank": aim.rank, "step": aim.step}
        return replace(podset, env=podset.env | {"GANGLINE_STRIKE": canonical(order).decode()})

    def strike(self, home: Path, aim: DrillTarget) -> float:
        patience, folder = time.monotonic() + _WITHIN_SECONDS, GangFolder(home)
        while (told := folder.read_inside(folder.inside / INJECTED_FILE)) is None:
            if folder.end(0) is not None or time.monotonic() > patience:
                raise UsageError(f"rank {aim.rank} did not come to step {aim.step + 1}")
            time.sleep(0.02)
        return float(json.loads(told)["mono"])


@dataclass(frozen=True, slots=True)
class TwoNodes:
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

    def strike(self, home: Path, aim: DrillTarget) -> float:
        mono = time.monotonic()
        lose_node(home, aim.rank // GangFolder(home).podset().procs_per_node)
        return mono


@dataclass(frozen=True, slots=True)
class ProxiedStore:
    """Lets the gang reach the run's store by way of a server that the drill can take away."""

    gateway: S3Gateway
    proxy: FaultProxy
    outage: StoreOutage

    @property
    def secrets(self) -> Mapping[str, bytes]:
        return {launchers.STORE_CREDENTIALS: self.gateway.credentials.encode()}

    def change(self, podset: PodSet, store: ObjectStore) -> PodSet:
        del store
        names = dict.fromkeys((*podset.secrets, launchers.STORE_CREDENTIALS))
        return replace(podset, store=S3Gateway.url(self.proxy.port), secrets=tuple(names))

    def strike(self, home: Path, aim: DrillTarget) -> float:
        podset = GangFolder(home).podset()
        assert aim.seconds is not None, "a store comes back"
        below = f"{gang_prefix(run_prefix(podset.project, podset.commit, podset.run))}/checkpoints/"
        return self.outage.begin(aim.kind.name, seconds=aim.seconds, below=below)


@contextmanager
def open_setup(wish: DrillRequest, store: ObjectStore) -> Iterator[DrillSetup]:
    """The rig of a drill in a run of its own; what it started ends with the block.

    Raises:
        ConfigError: This installation lacks what it needs.
    """
    if wish.kind.rig in ("task", "nodes", ""):
        makers: dict[str, Callable[[], DrillSetup]] = {
            "task": lambda: FaultInRank(wish),
            "nodes": TwoNodes,
            "": NoSetup,
        }
        yield makers[wish.kind.rig]()
        return
    with S3Gateway(store) as gateway, FaultProxy("127.0.0.1", gateway.port, seed=wish.seed) as proxy:
        _check_s3(gateway, proxy)
        outage = StoreOutage(gateway, proxy)
        try:
            yield ProxiedStore(gateway, proxy, outage)
        finally:
            outage.end()


def launcher_opener(rig: DrillSetup) -> OpenLauncher:
    """Opens the launcher of this machine with `rig` at its door; arguments of `launchers.open_launcher`."""

    def open_rigged(
        repo: Path, *, site: Site, environ: Mapping[str, str], store: ObjectStore, rights: Rights | None = None,
        **_: object,
    ) -> LocalLauncher:  # fmt: skip
        read = launchers.secret_reader(store, site, environ, rights)

        def secrets(name: str) -> bytes:
            return rig.secrets[name] if name in rig.secrets else read(name)

        return _SetupLauncher(
            rig, launchers.gangs_root(repo), store, secrets=secrets, targets=site_paths.targets(repo, site),
            sandbox=launchers.gang_sandbox(repo, rights, site=site, environ=environ),
        )  # fmt: skip

    return open_rigged


class _SetupLauncher(LocalLauncher):
    def __init__(
        self, rig: DrillSetup, root: Path, store: ObjectStore, *, secrets: Callable[[str], bytes], targets: Path,
        sandbox: Sandbox | None,
    ) -> None:  # fmt: skip
        super().__init__(root, store=store, secrets=secrets, targets=targets, sandbox=sandbox)
        self._rig, self._all = rig, store

    def submit(self, podset: PodSet) -> Gang:
        return super().submit(self._rig.change(podset, self._all) if podset.role == "train" else podset)


def _check_s3(gateway: S3Gateway, proxy: FaultProxy) -> None:
    """Ranks will speak S3. Raises ConfigError where they cannot."""
    open_store(S3Gateway.url(proxy.port), credentials=gateway.credentials).list("", limit=1)
