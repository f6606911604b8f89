"""Brings a gang's folder to life: plan, code and secrets on disk, then a detached keeper for each virtual node."""

import json
import os
import re
import secrets as random
import shutil
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from gangline import procfs
from gangline.errors import CapacityError, StorageError
from gangline.launch.local.folder import GangFolder, Launched, Process, write_file
from gangline.spec.gang import FIRST_GENERATION
from gangline.spec.podset import PodSet
from gangline.storage.blobs import get_blob
from gangline.storage.layer import fetch_layer
from gangline.storage.protocol import ObjectStore

CHECKPOINT_KEY = "checkpoint-key"
STORE_CREDENTIALS = "store-credentials"
REJOIN_SECONDS = 60.0
"""A virtual node has no replacement: the others wait for its start, and not long for one that died."""
_PASSED_ON = re.compile(r"PATH|HOME|LANG|LC_.*|TMPDIR|CUDA_.*|NVIDIA_.*|LD_LIBRARY_PATH|VIRTUAL_ENV|PYTHONPATH")
"""Names of the variables that `passed_on` lets through."""


def demand_room(podset: PodSet) -> None:
    """Raises `CapacityError` where the nodes of the podset together want more GPUs than this machine has."""
    wanted, found = podset.num_nodes * podset.resources.gpus, num_gpus()
    if wanted > found:
        raise CapacityError(
            f"gang {podset.name} wants {wanted} GPUs, this machine shows {found}; "
            "use fewer ranks, or a machine that has them"
        )


def num_gpus() -> int:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([each for each in visible.split(",") if each.strip() not in ("", "-1")])
    return len([path for path in Path("/dev").glob("nvidia*") if path.name.removeprefix("nvidia").isdecimal()])


def materialise(folder: GangFolder, podset: PodSet, *, store: ObjectStore, secrets: Callable[[str], bytes]) -> None:
    """Put on disk what the gang needs; what is there already is made anew."""
    plan = get_blob(store, podset.plan)
    write_file(folder.home / "plan.json", plan, mode=0o644)
    if first := _first_generation(store, plan):
        write_file(folder.home / FIRST_GENERATION, str(first).encode(), mode=0o644)
    draft = folder.home / ".code"
    for each in (draft, folder.home / "code"):
        shutil.rmtree(each, ignore_errors=True)
    fetch_layer(store, podset.code, draft)
    draft.rename(folder.home / "code")
    write_secrets(folder, {name: secrets(name) for name in podset.secrets})
    for name in ("logs", "heartbeat", "out/ranks"):
        (folder.home / name).mkdir(parents=True, exist_ok=True)


def _first_generation(store: ObjectStore, plan: bytes) -> int:
    """Above every generation of this run that has saved, in any gang: checkpoints refuse what an older one writes.

    What does not read is the keeper's to refuse, or binds nobody.
    """
    with suppress(ValueError, KeyError, TypeError):
        told = json.loads(plan)
        latest = store.get(f"{told['run_prefix']}/checkpoints/latest.json") if told["role"] == "train" else None
        return int(json.loads(latest.data)["generation"]) + 1 if latest else 0
    return 0


def write_secrets(folder: GangFolder, values: Mapping[str, bytes]) -> None:
    """For this user's eyes alone."""
    for name, value in values.items():
        write_file(folder.home / "secrets" / name, value, mode=0o600)


def start_keepers(folder: GangFolder, podset: PodSet, *, metrics_port: int | None = None) -> Launched:
    """Start one a virtual node, and remember them; `metrics_port` is that of rank 0."""
    port = _free_port() if podset.num_nodes > 1 else None
    keepers = tuple(
        _start_keeper(
            folder, podset, keeper_environ(folder, podset, node, control_port=port, metrics_port=metrics_port)
        )
        for node in range(podset.num_nodes)
    )
    launched = Launched(uid=random.token_hex(8), keepers=keepers, control_port=port)
    folder.write("launch.json", launched)
    return launched


def replace_keeper(folder: GangFolder, node: int, environ: Mapping[str, str]) -> None:
    """Start another keeper in the place of one that is gone, as a platform replaces a pod; under `keepers_lock`.

    `environ` is what the one before saw.
    """
    launched = folder.launched()
    assert launched is not None, "a keeper that is gone was started"
    another = _start_keeper(folder, folder.podset(), environ)
    keepers = (*launched.keepers[:node], another, *launched.keepers[node + 1 :])
    folder.write("launch.json", replace(launched, keepers=keepers))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _start_keeper(folder: GangFolder, podset: PodSet, environ: Mapping[str, str]) -> Process:
    """A session of its own, no parent's terminal, no inherited file: it outlives the driver."""
    program, *arguments = podset.command
    program = sys.executable if program in ("python", "python3") else program
    log = os.open(
        folder.log(f"keeper-{environ['NODE_RANK']}"), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644
    )
    try:
        pid = os.posix_spawnp(
            program,
            [program, *arguments],
            environ,
            setsid=True,
            setsigmask=(),
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, log, 1),
                (os.POSIX_SPAWN_DUP2, log, 2),
            ],
        )
    except OSError as error:
        raise StorageError(f"cannot start the keeper {program!r} of gang {podset.name}: {error.strerror}") from error
    finally:
        os.close(log)
    return Process(pid=pid, start_time=procfs.start_time(pid) or 0)


def passed_on() -> dict[str, str]:
    """What code of the user sees of the driver's environment, in a gang and beside one: secrets stay at home."""
    return {name: value for name, value in os.environ.items() if _PASSED_ON.fullmatch(name)}


def keeper_environ(
    folder: GangFolder,
    podset: PodSet,
    node: int,
    *,
    control_port: int | None = None,
    metrics_port: int | None = None,
) -> dict[str, str]:
    """All that the keeper of `node` sees; later lines win, the user's own cannot change the gang's.

    `control_port`: where keepers of several virtual nodes meet. `metrics_port`: of rank 0; None: nobody serves metrics.
    """
    own: dict[str, object] = {
        "NODE_RANK": node,
        "WORLD_SIZE": podset.world_size,
        "LOCAL_WORLD_SIZE": podset.procs_per_node,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": 0,
        "GANGLINE_RUN": podset.run,
        "GANGLINE_GANG": podset.name,
        "GANGLINE_HOME": folder.home,
        "GANGLINE_PLAN": folder.home / "plan.json",
        "GANGLINE_CODE": folder.home / "code",
        "GANGLINE_STORE": podset.store,
        "GANGLINE_KEY_FILE": folder.home / "secrets" / CHECKPOINT_KEY,
        "GANGLINE_GRACE_SECONDS": podset.grace_seconds,
        "PYTHONSAFEPATH": 1,  # whatever lies in the driver's folder is no module of the keeper
    }
    if STORE_CREDENTIALS in podset.secrets:
        own["GANGLINE_STORE_CREDENTIALS_FILE"] = folder.home / "secrets" / STORE_CREDENTIALS
    if metrics_port is not None:
        own["GANGLINE_METRICS_PORT"] = metrics_port + node * podset.procs_per_node
    if control_port is not None:
        own |= {"GANGLINE_CONTROL_PORT": control_port, "GANGLINE_REJOIN_SECONDS": REJOIN_SECONDS}
    if podset.deadline_seconds is not None:
        own["GANGLINE_DEADLINE_SECONDS"] = podset.deadline_seconds
    return passed_on() | podset.env | {name: str(value) for name, value in own.items()}
