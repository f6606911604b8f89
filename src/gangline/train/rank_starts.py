"""The environment and program of each rank of a generation, made from the keeper's own."""

import sys
from collections.abc import Mapping
from pathlib import Path

from gangline.spec.plan import Plan
from gangline.train.environment import KeeperEnvironment
from gangline.train.journal import utc_now
from gangline.train.starters import RankStart

TASK_MODULE = ("-m", "gangline.train.child")


def rank_starts(
    environment: KeeperEnvironment, plan: Plan, environ: Mapping[str, str], *, generation: int, port: int, fork: bool
) -> list[RankStart]:
    """One start a local rank; `environ` is the keeper's. `fork`: the warm parent needs no program."""
    shared = shared_environ(environ) | {
        "GANGLINE_GENERATION": str(generation),
        "GANGLINE_OUT": str(environment.out),
        "MASTER_PORT": str(port),
    }
    starts = []
    for local_rank, rank in enumerate(environment.ranks):
        own = {
            "RANK": str(rank),
            "LOCAL_RANK": str(local_rank),
            "GANGLINE_HEARTBEAT": str(environment.home / "heartbeat" / str(rank)),
        }
        log = environment.home / "logs" / f"{rank}.log"
        _mark(log, generation, rank)
        argv = () if fork else _argv(plan)
        starts.append(RankStart(rank=rank, argv=argv, environ=shared | own, cwd=environment.code, log=log))
    return starts


def shared_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """What every rank needs, the warm parent from its start: torch and numpy read some of it at import."""
    defaults = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    inherited = {name: value for name, value in environ.items() if name != "PYTHONSAFEPATH"}  # the keeper's own
    return (
        defaults
        | inherited
        | {
            "PYTHONHASHSEED": "0",
            "TORCH_FR_BUFFER_SIZE": "2000",
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
            "TORCHELASTIC_USE_AGENT_STORE": "True",  # env:// programs: the store is there, rank 0 opens none
        }
    )


def _argv(plan: Plan) -> tuple[str, ...]:
    command = plan.program.command
    if not command:
        return (sys.executable, *TASK_MODULE)
    return (sys.executable, *command[1:]) if command[0] in ("python", "python3") else command


def _mark(log: Path, generation: int, rank: int) -> None:
    with log.open("a") as file:
        file.write(f"---- rank {rank}, generation {generation}, {utc_now()}\n")
