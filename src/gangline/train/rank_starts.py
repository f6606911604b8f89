"""The environment and program of each rank of a generation, made from the keeper's own."""

import os
from collections.abc import Mapping
from pathlib import Path

from gangline.spec.code_path import CODE_PATH, code_folders, python_path
from gangline.spec.plan import Plan
from gangline.train.environment import OWN_NAME, TORCHRUN, KeeperEnvironment
from gangline.train.frameworks import framework_environ
from gangline.train.journal import replace
from gangline.train.log_files import mark
from gangline.train.peers.shape import Shape
from gangline.train.starters import RankStart

TASK_MODULE = ("-m", "gangline.train.child")


def rank_starts(
    environment: KeeperEnvironment,
    plan: Plan,
    environ: Mapping[str, str],
    *,
    shape: Shape,
    generation: int,
    port: int,
    fork: bool,
) -> list[RankStart]:
    """One start for each rank that this node has in a generation of `shape`.

    Args:
        environment: The keeper's, read.
        plan: For as many ranks as `shape` has.
        environ: The keeper's, as it stands.
        shape: This node takes part in it.
        generation: Its number.
        port: Of the rendezvous store.
        fork: The warm parent needs no program.
    """
    shared = (
        shared_environ(environment.of_ranks(environ))
        | _of_generation(environment, plan, shape=shape, generation=generation, port=port)
        | _of_code(environment, plan, environment.of_ranks(environ))
        | collectives_environ(plan)
    )
    argv = () if fork else _argv(plan, environment.rank_python)
    starts = []
    for local_rank, rank in enumerate(shape.ranks(environment.node_rank)):
        own = _of_rank(environment, plan, shape=shape, rank=rank, local_rank=local_rank, port=port)
        log = environment.home / "logs" / f"{rank}.log"
        mark(log, rank=rank, generation=generation)
        found = shared | own if plan.program.distributed else as_at_a_desk(shared | own)
        starts.append(
            RankStart(rank=rank, argv=argv, environ=found, cwd=environment.code / plan.program.folder, log=log)
        )
    return starts


def _of_generation(environment: KeeperEnvironment, plan: Plan, *, shape: Shape, generation: int, port: int,
                   ) -> dict[str, str]:  # fmt: skip
    return {
        "NODE_RANK": str(shape.place(environment.node_rank)),
        "WORLD_SIZE": str(shape.world_size),
        "LOCAL_WORLD_SIZE": str(shape.per_node),
        "GANGLINE_PLAN": str(_plan_file(environment, plan)),
        "GANGLINE_GENERATION": str(generation),
        "GANGLINE_OUT": str(environment.out),
        "MASTER_PORT": str(port),
    } | ({} if plan.jobs else {"GANGLINE_SEED": str(plan.seed)})  # jobs have a seed each


def _of_code(environment: KeeperEnvironment, plan: Plan, environ: Mapping[str, str]) -> dict[str, str]:
    """The code of the commit comes first, whatever else is installed."""
    start = environment.code / plan.program.folder
    folders = code_folders(start, plan.program.path)
    return {
        "GANGLINE_CODE": str(start),
        CODE_PATH: os.pathsep.join(folders),
        "PYTHONPATH": python_path(folders, environ.get("PYTHONPATH")),
        "GANGLINE_LAYER": str(environment.code),
    }


def _of_rank(environment: KeeperEnvironment, plan: Plan, *, shape: Shape, rank: int, local_rank: int, port: int,
             ) -> dict[str, str]:  # fmt: skip
    own = {
        "RANK": str(rank),
        "LOCAL_RANK": str(local_rank),
        "GANGLINE_HEARTBEAT": str(environment.home / "heartbeat" / str(rank)),
    }
    if local_rank == 0:  # the others run the same code in the same environment
        own["GANGLINE_RAN"] = str(environment.out / "ranks" / f"ran-{rank}.jsonl")
    if plan.program.command and plan.program.distributed:
        own |= framework_environ(
            rank=rank, nodes=shape.nodes, per_node=shape.per_node, master_addr=environment.master_addr,
            master_port=port, on_loopback=environment.on_loopback,
        )  # fmt: skip
    return own


def as_at_a_desk(environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` with names of ours for torchrun's, which some programs take for an order to look for other ranks."""
    hidden = {OWN_NAME + name: environ[name] for name in TORCHRUN if name in environ}
    return {name: value for name, value in environ.items() if name not in TORCHRUN} | hidden


def _plan_file(environment: KeeperEnvironment, plan: Plan) -> Path:
    """Where ranks read `plan`: the gang's own file, or one beside it for another world size."""
    if plan.world_size == environment.world_size:
        return environment.plan
    path = environment.home / f"plan-{plan.world_size}.json"
    replace(path, plan.to_json(), durable=False)
    return path


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


def collectives_environ(plan: Plan) -> dict[str, str]:
    """What NCCL reads of the plan; nothing where it decides itself, or is not there."""
    if plan.device != "cuda" or plan.collectives == "auto":
        return {}
    return {"NCCL_ALGO": plan.collectives.capitalize()}


def _argv(plan: Plan, python: str) -> tuple[str, ...]:
    command = plan.program.command
    if not command:
        return (python, *TASK_MODULE)
    words = tuple(word.replace("{seed}", str(plan.seed)) for word in command)
    return (python, *words[1:]) if words[0] in ("python", "python3") else words
