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

from gangline.drill.catalogue import DrillRequest, DrillTarget
from gangline.errors import ConfigError, UsageError
from gangline.faults.process_faults import freeze_rank, kill_rank, lose_node, slow_rank, stop_rank
from gangline.faults.proxy import FaultProxy, FaultRule
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
"""Share of the outage in which connections are refused; then the store answers 503, like a starting server."""
SLOW_SECONDS = 0.25
"""Added to every request to a slow store."""


class StoreOutage:
    """An outage of the store behind a proxy, in a thread; at most one, ended by time or by `end`."""

    def __init__(self, gateway: S3Gateway, proxy: FaultProxy) -> None:
        self._gateway, self._proxy = gateway, proxy
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, name: str, *, seconds: float, below: str) -> float:
        """Start the outage of drill `name`, of `fill-disk` only for keys `below`; returns its monotonic time."""
        mono = time.monotonic()
        run = {"kill-store": self._kill, "slow-store": self._slow, "fill-disk": self._fill}[name]
        self._thread = threading.Thread(target=run, args=(seconds, below), name=name, daemon=True)
        self._thread.start()
        return mono

    def end(self) -> None:
        """End the outage and wait for its thread."""
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
"""Written by the rank that injects a fault into itself; format in `train.rank.faulty_task`, not imported here."""
NODES = 2
_WITHIN_SECONDS = 300.0
"""Time limit for the rank to reach that step."""


class DrillSetup(Protocol):
    """Change of a gang before its start, and the injection of the fault."""

    @property
    def secrets(self) -> Mapping[str, bytes]:
        """Values of secrets in the podset, which win over the site's."""
        ...

    def change(self, podset: PodSet, store: ObjectStore) -> PodSet:
        """The podset of the training, changed; equal for equal podsets. Raises ConfigError."""
        ...

    def inject(self, home: Path, target: DrillTarget) -> float:
        """Inject the fault; returns its time on the monotonic clock. Raises UsageError if the target is gone."""
        ...


@dataclass(frozen=True, slots=True)
class NoSetup:
    """Changes nothing; signals the running processes."""

    secrets: Mapping[str, bytes] = field(default_factory=dict)

    def change(self, podset: PodSet, store: ObjectStore) -> PodSet:
        del store
        return podset

    def inject(self, home: Path, target: DrillTarget) -> float:
        mono = time.monotonic()
        _ACTIONS[target.kind.name](home, target)
        return mono


@dataclass(frozen=True, slots=True)
class FaultInRank:
    """Gives the gang's first attempt a task with one fault in it."""

    request: DrillRequest
    secrets: Mapping[str, bytes] = field(default_factory=dict)

    def change(self, podset: PodSet, store: ObjectStore) -> PodSet:
        if podset.name != podset.run:
            return podset
        target = self.request.choose_target(Plan.from_json(get_blob(store, podset.plan)))
        fault = {"kind": target.kind.name, "rank": target.rank, "step": target.step}
        return replace(podset, env=podset.env | {"GANGLINE_STRIKE": canonical(fault).decode()})

    def inject(self, home: Path, target: DrillTarget) -> float:
        deadline, folder = time.monotonic() + _WITHIN_SECONDS, GangFolder(home)
        while (data := folder.read_inside(folder.inside / INJECTED_FILE)) is None:
            if folder.end(0) is not None or time.monotonic() > deadline:
                raise UsageError(f"rank {target.rank} did not reach step {target.step + 1}")
            time.sleep(0.02)
        return float(json.loads(data)["mono"])


@dataclass(frozen=True, slots=True)
class TwoNodes:
    """Starts the gang as two virtual nodes, and removes one of them."""

    secrets: Mapping[str, bytes] = field(default_factory=dict)

    def change(self, podset: PodSet, store: ObjectStore) -> PodSet:
        del store
        if podset.num_nodes > 1:
            return podset
        if podset.procs_per_node % NODES:
            raise ConfigError(
                f"drill lose-node is refused: {podset.procs_per_node} ranks do not make two equal nodes; "
                "set train.ranks = 2 in line.toml"
            )
        per_node = podset.procs_per_node // NODES
        gpus = podset.resources.gpus // NODES
        return replace(podset, num_nodes=NODES, procs_per_node=per_node, resources=replace(podset.resources, gpus=gpus))

    def inject(self, home: Path, target: DrillTarget) -> float:
        mono = time.monotonic()
        lose_node(home, target.rank // GangFolder(home).podset().procs_per_node)
        return mono


@dataclass(frozen=True, slots=True)
class ProxiedStore:
    """Gives the gang a store behind a proxy that the drill controls."""

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

    def inject(self, home: Path, target: DrillTarget) -> float:
        podset = GangFolder(home).podset()
        assert target.seconds is not None, "an outage has a duration"
        below = f"{gang_prefix(run_prefix(podset.project, podset.commit, podset.run))}/checkpoints/"
        return self.outage.begin(target.kind.name, seconds=target.seconds, below=below)


@contextmanager
def open_setup(request: DrillRequest, store: ObjectStore) -> Iterator[DrillSetup]:
    """The setup of a drill in a dedicated run; ends what it started at the end of the block.

    Raises:
        ConfigError: A package that it needs is not installed.
    """
    if request.kind.setup in ("task", "nodes", ""):
        makers: dict[str, Callable[[], DrillSetup]] = {
            "task": lambda: FaultInRank(request),
            "nodes": TwoNodes,
            "": NoSetup,
        }
        yield makers[request.kind.setup]()
        return
    with S3Gateway(store) as gateway, FaultProxy("127.0.0.1", gateway.port, seed=request.seed) as proxy:
        # a ConfigError if the S3 client, which ranks need, is not installed
        open_store(S3Gateway.url(proxy.port), credentials=gateway.credentials).list("", limit=1)
        outage = StoreOutage(gateway, proxy)
        try:
            yield ProxiedStore(gateway, proxy, outage)
        finally:
            outage.end()


def launcher_opener(setup: DrillSetup) -> OpenLauncher:
    """A function like `launchers.open_launcher` for this machine, whose launcher applies `setup` to gangs."""

    def open_with_setup(
        repo: Path, *, site: Site, environ: Mapping[str, str], store: ObjectStore, rights: Rights | None = None,
        **_: object,
    ) -> LocalLauncher:  # fmt: skip
        read = launchers.secret_reader(store, site, environ, rights, repo=repo)

        def secrets(name: str) -> bytes:
            return setup.secrets[name] if name in setup.secrets else read(name)

        return _SetupLauncher(
            setup, launchers.gangs_root(repo), store, secrets=secrets, targets=site_paths.targets(repo, site),
            sandbox=launchers.gang_sandbox(repo, rights, site=site, environ=environ),
        )  # fmt: skip

    return open_with_setup


class _SetupLauncher(LocalLauncher):
    def __init__(
        self, setup: DrillSetup, root: Path, store: ObjectStore, *, secrets: Callable[[str], bytes], targets: Path,
        sandbox: Sandbox | None,
    ) -> None:  # fmt: skip
        super().__init__(root, store=store, secrets=secrets, targets=targets, sandbox=sandbox)
        self._rig, self._all = setup, store

    def submit(self, podset: PodSet) -> Gang:
        return super().submit(self._rig.change(podset, self._all) if podset.role == "train" else podset)


HANG_SECONDS = 900.0
"""A hanging rank continues after this time, if no watchdog has ended it."""
SLOW_SHARE = 0.5
"""Share of its time for which a slow rank is stopped."""
AGAIN_SECONDS = 60.0
"""Time limit for the ranks of the next generation to start, before the second kill."""
RESIZE_FILE = "resize.json"
"""Request that the keeper reads in its folder; format in `keeper.ipc`."""


def _kill_twice(home: Path, target: DrillTarget) -> None:
    folder = GangFolder(home)
    before = folder.keeper(0)
    kill_rank(home, target.rank)
    deadline = time.monotonic() + AGAIN_SECONDS
    while time.monotonic() < deadline:
        now = folder.keeper(0)
        if now and before and now.generation > before.generation and str(target.rank) in now.ranks:
            kill_rank(home, target.rank)
            return
        time.sleep(0.01)
    raise UsageError(f"rank {target.rank} did not come back within {AGAIN_SECONDS:g} s of the first kill")


_ACTIONS: dict[str, Callable[[Path, DrillTarget], object]] = {
    "kill-rank": lambda home, target: kill_rank(home, target.rank),
    "kill-twice": _kill_twice,
    "freeze-rank": lambda home, target: freeze_rank(home, target.rank, _duration(target)),
    "hang-rank": lambda home, target: freeze_rank(home, target.rank, HANG_SECONDS),
    "slow-rank": lambda home, target: slow_rank(home, target.rank, _duration(target), share=SLOW_SHARE),
    "stop": lambda home, target: stop_rank(home, target.rank),
    "resize": lambda home, target: GangFolder(home).write_inside(RESIZE_FILE, {"ranks": target.ranks}),
}


def _duration(target: DrillTarget) -> float:
    assert target.seconds is not None, f"{target.kind.name} has a duration"
    return target.seconds
