"""Sandbox of a local gang: its own part of its folder, and its own part of a store in a folder.

Of the store it sees the blobs, where it reads data; its own prefix, where it writes; and the sections of runs whose
checkpoints its plan opens, whole: ranks may put links in the place of what is in one. A gang that reaches its store by
the network sees nothing of this.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gangline.errors import IntegrityError
from gangline.launch.local.folder import GangFolder
from gangline.launch.sandbox import Sandbox, SandboxView
from gangline.launch.sandbox.engines import SandboxCommand, SandboxProgram
from gangline.launch.sandbox.host_paths import give, interpreter_paths, make_own
from gangline.launch.sandbox.policy import close
from gangline.spec.gang.driver_orders import PUBLISHED, SHARDS_KEY, ShardAccess
from gangline.spec.gang.podset import PodSet
from gangline.storage.folder.store import FolderStore
from gangline.storage.objects.blobs import PREFIX

_STORE_SOCKET = "GANGLINE_STORE_SOCKET"
"""Read by `keeper.ipc.environment`, which launchers do not import."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GangSandbox:
    """Sandbox of the keepers of one gang."""

    sandbox: Sandbox
    view: SandboxView
    cwd: Path
    home: Path
    relay: Path | None = None
    """Folder of the socket through which a gang without a network reaches its store; None: not needed."""

    @staticmethod
    def make(folder: GangFolder, podset: PodSet, plan: bytes, sandbox: Sandbox) -> "GangSandbox":
        """Create the folders that the gang writes, and compute its view; nothing is started."""
        uid = sandbox.engine.uid
        close(folder.home, sandbox.engine)
        tmp, home = make_own(folder.tmp, uid), sandbox.make_home(folder.own_home)
        seen = _of_store(podset.store, _read_plan(plan), uid)
        shards = _of_shards(podset, sandbox)
        relay = None if sandbox.is_own or not podset.store.startswith("s3:") else folder.home / "relay"
        if relay is not None and sandbox.engine.hides:
            relay.mkdir(exist_ok=True)
            seen = replace(seen, read=(*seen.read, relay))
        give(folder.inside, uid)
        own = interpreter_paths(podset.python) if podset.python else ()
        view = sandbox.view(
            tmp=tmp, write=(folder.inside, home, *seen.write, *shards.write),
            read=(folder.secrets, *seen.read, *shards.read, *own),
            hidden=seen.hidden, empty=seen.empty,
        )  # fmt: skip
        return GangSandbox(
            sandbox=sandbox, view=view, cwd=folder.inside, home=home, relay=relay if sandbox.engine.hides else None
        )

    @property
    def environ(self) -> dict[str, str]:
        """Environment of the gang, from that of this process and of the sandbox."""
        by_socket = {} if self.relay is None else {_STORE_SOCKET: str(self.relay)}
        return self.sandbox.environ(home=self.home, tmp=self.view.tmp) | by_socket

    def command(self, argv: tuple[str, ...], environ: Mapping[str, str]) -> SandboxCommand:
        """How a keeper with these arguments is started inside the sandbox."""
        program = SandboxProgram(argv=argv, environ=environ, cwd=self.cwd, with_parent=False, is_init=True)
        return self.sandbox.command(program, self.view)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Seen:
    write: tuple[Path, ...] = ()
    read: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    empty: tuple[Path, ...] = ()


def require_sandbox(sandbox: Sandbox, podset: PodSet) -> None:
    """Raises `IntegrityError` if the gang requires a sandbox that this machine cannot give it."""
    sandbox.require()
    sandbox.require_python(podset.python)
    if not sandbox.is_own and podset.num_nodes > 1:
        raise IntegrityError(
            f"wanted one virtual node for a fork's gang, found {podset.num_nodes}: each has a separate network here,"
            " so they cannot reach each other; a cluster runs it"
        )


def _of_store(url: str, plan: Mapping[str, Any], uid: int | None) -> _Seen:
    """Paths of a store in a folder that the gang may see; empty for any other store."""
    if not url.startswith("file:") or "run_prefix" not in plan:
        return _Seen()
    root = Path(url.removeprefix("file:"))
    store = FolderStore(root)
    section = store.make_section(plan["run_prefix"])
    give(section.folder, uid)
    blobs = make_own(root / PREFIX.rstrip("/"), None)
    if uid is not None:
        _let_read(root, plan)
    read = (blobs, *(store.mount_point(each) for each in _opened(plan)))
    return _Seen(write=(section.folder,), read=read, hidden=(root,), empty=(section.mark,))


def _of_shards(podset: PodSet, sandbox: Sandbox) -> _Seen:
    """Cache of the gang, which it alone and its like see, and the folders that are sources of own commits.

    A fork has neither, whatever its PodSet says. A cache that cannot be made is left out: ranks read without it.
    """
    access = ShardAccess.from_json(podset.env.get(SHARDS_KEY, "{}"))
    if not sandbox.is_own:
        return _Seen()
    urls = (urlsplit(table.url) for table in access.sources.values())
    folders = tuple(Path(url.path) for url in urls if url.scheme == "file")
    if access.cache is None or (access.cache.endswith(PUBLISHED) and not sandbox.engine.hides):
        return _Seen(read=folders)  # all own commits are one user there
    cache = Path(access.cache)
    try:
        cache.parent.parent.mkdir(parents=True, exist_ok=True)
        close(cache.parent, sandbox.engine)
        make_own(cache, sandbox.engine.uid).chmod(0o700)
    except OSError:
        return _Seen(read=folders)
    return _Seen(write=(cache,), read=folders)


def _read_plan(plan: bytes) -> Mapping[str, Any]:
    """The plan; empty if it is invalid, which the keeper reports."""
    try:
        plan_document = json.loads(plan)
    except ValueError:
        return {}
    return plan_document if isinstance(plan_document, dict) else {}


def _opened(plan: Mapping[str, Any]) -> Iterator[str]:
    """Keys of the checkpoints that it starts from or that its jobs open, outside its own prefix."""
    for opens in (plan.get("start") or {}, *(plan.get("jobs") or ())):
        checkpoint = opens.get("checkpoint")
        if checkpoint and not checkpoint.startswith(f"{plan['run_prefix']}/"):
            yield str(checkpoint)


def _let_read(store: Path, plan: Mapping[str, Any]) -> None:
    """Make data files readable that a driver with a strict umask wrote, for the user of the gang."""
    for each in (plan.get("data") or {}).get("files") or ():
        path = store / each["key"]
        for part in (path, path.parent):
            with suppress(FileNotFoundError):  # the rank that reads it says so
                part.chmod(part.stat().st_mode | (0o555 if part.is_dir() else 0o444))
