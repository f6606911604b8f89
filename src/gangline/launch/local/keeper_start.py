"""Start of a local gang: writes plan, code and secrets to disk, then starts one detached keeper per virtual node.

With a sandbox, a keeper and all its ranks share one, as in a pod. The keeper is not a child of the process that
starts it, and does not end with it.
"""

import json
import os
import secrets as random
import select
import shutil
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from gangline import procfs
from gangline.errors import CapacityError, IntegrityError, StorageError
from gangline.launch.local.folder import SANDBOXED, GangFolder, LaunchedGang, Process, write_file
from gangline.launch.local.gang_sandbox import GangSandbox
from gangline.launch.sandbox import Sandbox
from gangline.launch.sandbox.engines import CLEAN, INFO_FD, SandboxCommand
from gangline.launch.sandbox.environment import passed_on
from gangline.launch.sandbox.host_paths import make_own
from gangline.spec.data_source import DataFile
from gangline.spec.gang.podset import PodSet
from gangline.spec.gang.status import FIRST_GENERATION
from gangline.spec.plan import Plan
from gangline.storage.folder.safe_paths import delete_tree
from gangline.storage.objects.blobs import get_blob
from gangline.storage.objects.code_layer import fetch_layer
from gangline.storage.objects.placed_files import place_files
from gangline.storage.objects.protocol import ObjectStore

_CHECKPOINT_KEY = "checkpoint-key"
_STORE_CREDENTIALS = "store-credentials"
REJOIN_SECONDS = 60.0
"""How long keepers wait for a dead peer: a virtual node is not replaced, so this only covers its start."""
_TELLS_SECONDS = 20.0
"""Time limit for a sandbox to report the pid of its keeper."""


def require_gpus(podset: PodSet) -> None:
    """Raises `CapacityError` if the nodes of the PodSet together request more GPUs than this machine has."""
    wanted, found = podset.num_nodes * podset.resources.gpus, _num_gpus()
    if wanted > found:
        raise CapacityError(
            f"gang {podset.name} wants {wanted} GPUs, found {found} on this machine; use fewer ranks or another machine"
        )


def _num_gpus() -> int:
    visible = passed_on().get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([part for part in visible.split(",") if part.strip() not in ("", "-1")])
    return len([path for path in Path("/dev").glob("nvidia*") if path.name.removeprefix("nvidia").isdecimal()])


def materialise(
    folder: GangFolder, podset: PodSet, *, store: ObjectStore, secrets: Callable[[str], bytes],
    sandbox: Sandbox | None = None,
) -> GangSandbox | None:  # fmt: skip
    """Write everything that the gang needs to its folder, over what exists; nothing is started.

    Returns the sandbox of its keepers; None without one.
    """
    if sandbox is not None:
        _set_aside(folder)
        make_own(folder.home / SANDBOXED, sandbox.engine.uid)
    home, plan = folder.inside, get_blob(store, podset.plan)
    write_file(home / "plan.json", plan, mode=0o644)
    if first := _first_generation(store, plan):
        write_file(home / FIRST_GENERATION, str(first).encode(), mode=0o644)
    draft = folder.home / ".code"
    for path in (draft, home / "code"):
        shutil.rmtree(path, ignore_errors=True)
    fetch_layer(store, podset.code, draft)
    place_files(store, _tracked(plan), draft)
    draft.rename(home / "code")
    folder.secrets.mkdir(parents=True, exist_ok=True)
    if sandbox is not None:
        folder.secrets.chmod(0o755)  # the folder around it is closed; its files belong to the user of the gang
    write_secrets(folder, {name: secrets(name) for name in podset.secrets})
    for path in (folder.home / "logs", home / "logs", home / "heartbeat", home / "out" / "ranks"):
        path.mkdir(parents=True, exist_ok=True)
    return GangSandbox.make(folder, podset, plan, sandbox) if sandbox is not None else None


def _set_aside(folder: GangFolder) -> None:
    """Remove what ranks wrote whose submitter died, as nothing of it may be opened, changed or mounted again."""
    for path in (folder.home / SANDBOXED, folder.tmp, folder.own_home):
        with suppress(FileNotFoundError):
            delete_tree(path.rename(folder.home / f".left-{random.token_hex(4)}"))


def _first_generation(store: ObjectStore, plan: bytes) -> int:
    """One above every generation of this run that has saved, as checkpoints refuse writes of older generations.

    0 without a checkpoint, or if a document is invalid, which the keeper reports.
    """
    with suppress(ValueError, KeyError, TypeError, IntegrityError):
        parsed = Plan.from_json(plan)
        latest = None if parsed.jobs else store.get(f"{parsed.own_prefix}/checkpoints/latest.json")
        return int(json.loads(latest.data)["generation"]) + 1 if latest else 0
    return 0


def _tracked(plan: bytes) -> tuple[DataFile, ...]:
    """Files that DVC or Git LFS track; none of an invalid plan, which the keeper reports."""
    with suppress(ValueError, KeyError, TypeError, IntegrityError):
        return Plan.from_json(plan).data.tracked
    return ()


def write_secrets(folder: GangFolder, values: Mapping[str, bytes]) -> None:
    """Write the secrets, readable only for the user of the gang, which cannot replace them by other files."""
    owner = folder.inside.stat()
    for name, value in values.items():
        write_file(folder.secrets / name, value, mode=0o600, owner=(owner.st_uid, owner.st_gid))


def start_keepers(
    folder: GangFolder, podset: PodSet, *, metrics_port: int | None = None, entrance: GangSandbox | None = None
) -> LaunchedGang:
    """Start one keeper per virtual node and record them; `metrics_port` is that of rank 0."""
    environ = entrance.environ if entrance else passed_on()
    commands = []
    for node in range(podset.num_nodes):
        own = keeper_environ(folder, podset, node, environ=environ, metrics_port=metrics_port)
        commands.append(keeper_command(folder, podset, own, entrance))
    keepers = tuple(_start_keeper(folder, node, command) for node, command in enumerate(commands))
    kept = tuple(command.argv for command in commands) if entrance else ()
    if entrance and entrance.relay:
        _start_relay(folder, podset.store, entrance.relay, keepers[0])
    launched = LaunchedGang(uid=random.token_hex(8), keepers=keepers, commands=kept)
    folder.write("launch.json", launched)
    return launched


def replace_keeper(folder: GangFolder, node: int, environ: Mapping[str, str]) -> None:
    """Start another keeper for one that died, as a platform replaces a pod; call it under `keepers_lock`.

    `environ` is that of the former keeper.
    """
    launched = folder.launched()
    assert launched is not None, "a keeper that is gone was started"
    command = keeper_command(folder, folder.podset(), environ, None)
    if launched.commands:
        reports_pid = launched.keepers[node].parent is not None
        command = SandboxCommand(argv=launched.commands[node], environ=CLEAN, reports_pid=reports_pid)
    another = _start_keeper(folder, node, command)
    keepers = (*launched.keepers[:node], another, *launched.keepers[node + 1 :])
    folder.write("launch.json", replace(launched, keepers=keepers))


def keeper_command(
    folder: GangFolder, podset: PodSet, environ: Mapping[str, str], entrance: GangSandbox | None
) -> SandboxCommand:
    """Command line of a keeper with this environment, inside `entrance` if there is one."""
    program, *arguments = podset.command
    argv = (sys.executable if program in ("python", "python3") else program, *arguments)
    return entrance.command(argv, environ) if entrance else SandboxCommand(argv=argv, environ=environ, cwd=folder.home)


def _start_keeper(folder: GangFolder, node: int, command: SandboxCommand) -> Process:
    """Start it in its own session without terminal and inherited files, so that it outlives the driver."""
    log = os.open(folder.keeper_log(node), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    reader, writer = os.pipe2(os.O_CLOEXEC)
    try:
        pid = os.posix_spawnp(
            command.argv[0],
            command.argv,
            command.environ,
            setsid=True,
            setsigmask=(),
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, log, 1),
                (os.POSIX_SPAWN_DUP2, log, 2),
                *([(os.POSIX_SPAWN_DUP2, writer, INFO_FD)] if command.reports_pid else []),
            ],
        )
    except OSError as error:
        os.close(reader)
        raise StorageError(
            f"cannot start the keeper {command.argv[0]!r} of gang {folder.home.name}: {error.strerror}"
        ) from error
    finally:
        os.close(log)
        os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        child = child_of(pipe.fileno()) if command.reports_pid else None
    if child is None:  # bwrap failed; its message is in the log
        return Process(pid=pid, start_time=procfs.start_time(pid) or 0)
    return Process(pid=child, start_time=procfs.start_time(child) or 0, parent=pid)


def _start_relay(folder: GangFolder, store: str, socket_folder: Path, keeper: Process) -> None:
    """Start the relay detached; it ends with the keeper."""
    server = urlsplit(dict(parse_qsl(urlsplit(store).query))["endpoint"])
    port = server.port or (443 if server.scheme == "https" else 80)
    words = (socket_folder, server.hostname, port, keeper.pid, keeper.start_time)
    argv = (sys.executable, "-m", "gangline.launch.sandbox.relay", *map(str, words))
    log = (os.POSIX_SPAWN_OPEN, 2, str(folder.home / "logs" / "relay.log"), os.O_WRONLY | os.O_CREAT, 0o644)
    null = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1)]
    os.posix_spawn(sys.executable, argv, dict(CLEAN) | passed_on(), setsid=True, file_actions=[*null, log])


def child_of(pipe: int) -> int | None:
    """Pid that bwrap reports for its child; None: it reports none."""
    data, poll = b"", select.poll()
    poll.register(pipe, select.POLLIN)
    while poll.poll(_TELLS_SECONDS * 1000):
        piece = os.read(pipe, 4096)
        data += piece
        with suppress(ValueError, KeyError, TypeError):
            return int(json.loads(data)["child-pid"])
        if not piece:
            return None
    return None


def keeper_environ(
    folder: GangFolder,
    podset: PodSet,
    node: int,
    *,
    environ: Mapping[str, str] | None = None,
    metrics_port: int | None = None,
) -> dict[str, str]:
    """Environment of the keeper of `node`; variables of the gang override those of the user.

    Args:
        folder: Of the gang.
        podset: Of the gang.
        node: Node rank.
        environ: Inherited variables; None: those that are passed on from this process.
        metrics_port: Of rank 0; None: ranks serve no metrics.
    """
    home = folder.inside
    own: dict[str, object] = {
        "NODE_RANK": node,
        "WORLD_SIZE": podset.world_size,
        "LOCAL_WORLD_SIZE": podset.procs_per_node,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": 0,
        "GANGLINE_RUN": podset.run,
        "GANGLINE_GANG": podset.name,
        "GANGLINE_HOME": home,
        "GANGLINE_PLAN": home / "plan.json",
        "GANGLINE_CODE": home / "code",
        "GANGLINE_STORE": podset.store,
        "GANGLINE_KEY_FILE": folder.secrets / _CHECKPOINT_KEY,
        "GANGLINE_GRACE_SECONDS": podset.grace_seconds,
        "PYTHONSAFEPATH": 1,  # files in the driver's folder must not shadow modules of the keeper
    }
    if _STORE_CREDENTIALS in podset.secrets:
        own["GANGLINE_STORE_CREDENTIALS_FILE"] = folder.secrets / _STORE_CREDENTIALS
    if metrics_port is not None:
        own["GANGLINE_METRICS_PORT"] = metrics_port + node * podset.procs_per_node
    if podset.num_nodes > 1:
        own |= {"GANGLINE_CONTROL_PORT": 0, "GANGLINE_REJOIN_SECONDS": REJOIN_SECONDS}
    if podset.deadline_seconds is not None:
        own["GANGLINE_DEADLINE_SECONDS"] = podset.deadline_seconds
    if podset.python is not None:
        own["GANGLINE_PYTHON"] = podset.python
    passed = passed_on() if environ is None else dict(environ)
    return passed | podset.variables | {name: str(value) for name, value in own.items()}
