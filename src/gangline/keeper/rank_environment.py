"""Environment variables and program of each rank of a generation, derived from the keeper's own.

TensorFlow reads TF_CONFIG, JAX reads JAX_COORDINATOR_ADDRESS. Their ports must be free in every generation and known
to all ranks in advance. Pods have their own ports, which are fixed. On one machine the ports follow from the port of
the rendezvous store, which is new in each generation, and lie below the ephemeral range: if one is taken, its rank
fails and the next generation gets others.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from gangline.keeper.coordination.world_size import GangShape
from gangline.keeper.ipc.environment import OWN_NAME, TORCHRUN, KeeperEnvironment
from gangline.keeper.logs.log_files import write_generation_header
from gangline.keeper.ranks.pipelines import with_pipefail
from gangline.keeper.ranks.rank_processes import RankStart
from gangline.spec.gang.podset import TRACKERS_KEY
from gangline.spec.plan import Plan
from gangline.spec.program_words import program_words
from gangline.spec.python_environment import CODE_PATH, code_folders, python_path
from gangline.storage.folder.durable_files import replace_file

JAX_PORT, FIRST_TF_PORT = 29_599, 29_600
_LOWEST, _PORTS, _A_GANG = 10_000, 20_000, 80
"""First port, number of ports, and ports per gang: a gang of up to 79 ranks gets 80 ports of this machine."""
_FIRST_POD = re.compile(r"-0(?=\.|$)")


def framework_environ(
    *, rank: int, nodes: Sequence[int], per_node: int, master_addr: str, master_port: int, on_loopback: bool
) -> dict[str, str]:
    """Variables of one rank.

    Args:
        rank: Of the gang.
        nodes: Those that take part, in rank order, each with `per_node` ranks.
        per_node: Ranks of a node.
        master_addr: Host of node 0; of pods its first label ends with their number.
        master_port: Of this generation's rendezvous store.
        on_loopback: All nodes are on this machine.
    """
    world_size = len(nodes) * per_node
    if on_loopback:
        first = _LOWEST + master_port * _A_GANG % _PORTS
        coordinator, *workers = (f"{master_addr}:{first + number}" for number in range(world_size + 1))
    else:
        hosts = [_FIRST_POD.sub(f"-{node}", master_addr, count=1) for node in nodes]
        workers = [f"{host}:{FIRST_TF_PORT + local}" for host in hosts for local in range(per_node)]
        coordinator = f"{master_addr}:{JAX_PORT}"
    cluster = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}}
    return {"TF_CONFIG": json.dumps(cluster), "JAX_COORDINATOR_ADDRESS": coordinator}


TASK_MODULE = ("-m", "gangline.train.rank.child")


def rank_starts(
    environment: KeeperEnvironment,
    plan: Plan,
    environ: Mapping[str, str],
    *,
    shape: GangShape,
    generation: int,
    port: int,
    fork: bool,
    save_every: int | None = None,
) -> list[RankStart]:
    """One start for each rank that this node has in a generation of `shape`.

    Args:
        environment: Of the keeper, parsed.
        plan: Has as many ranks as `shape`.
        environ: Of the keeper process.
        shape: This node takes part in it.
        generation: Its number.
        port: Of the rendezvous store.
        fork: The warm parent forks the ranks, so they need no command.
        save_every: Steps between saves of this generation; None: as planned.
    """
    shared = (
        shared_environ(environment.of_ranks(environ))
        | _of_generation(environment, plan, shape=shape, generation=generation, port=port)
        | ({} if save_every in (None, plan.checkpoint.every) else {"GANGLINE_SAVE_EVERY": str(save_every)})
        | _of_code(environment, plan, environment.of_ranks(environ))
        | collectives_environ(plan)
    )
    argv = () if fork else _argv(plan, environment.rank_python, search_path=shared.get("PATH"))
    starts = []
    for local_rank, rank in enumerate(shape.ranks(environment.node_rank)):
        own = _of_rank(environment, plan, shape=shape, rank=rank, local_rank=local_rank, port=port)
        log = environment.home / "logs" / f"{rank}.log"
        write_generation_header(log, rank=rank, generation=generation)
        mine = tracking_environ(shared | own, writes=rank == 0 and plan.role == "train", home=environment.home)
        torchrun_variables = mine if plan.program.distributed else hide_torchrun_variables(mine)
        starts.append(
            RankStart(
                rank=rank, argv=argv, environ=torchrun_variables, cwd=environment.code / plan.program.folder, log=log
            )
        )
    return starts


def _of_generation(environment: KeeperEnvironment, plan: Plan, *, shape: GangShape, generation: int, port: int,
                   ) -> dict[str, str]:  # fmt: skip
    return {
        "NODE_RANK": str(shape.place(environment.node_rank)),
        "WORLD_SIZE": str(shape.world_size),
        "LOCAL_WORLD_SIZE": str(shape.per_node),
        "GANGLINE_PLAN": str(_plan_file(environment, plan)),
        "GANGLINE_GENERATION": str(generation),
        "GANGLINE_OUT": str(environment.out),
        "MASTER_PORT": str(port),
    } | ({} if plan.jobs else {"GANGLINE_SEED": str(plan.seed)})  # each job has its own seed


def _of_code(environment: KeeperEnvironment, plan: Plan, environ: Mapping[str, str]) -> dict[str, str]:
    """Variables that put the code of the commit before all installed packages."""
    start = environment.code / plan.program.folder
    folders = code_folders(start, plan.program.path)
    return {
        "GANGLINE_CODE": str(start),
        CODE_PATH: os.pathsep.join(folders),
        "PYTHONPATH": python_path(folders, environ.get("PYTHONPATH")),
        "GANGLINE_LAYER": str(environment.code),
    }


def _of_rank(environment: KeeperEnvironment, plan: Plan, *, shape: GangShape, rank: int, local_rank: int, port: int,
             ) -> dict[str, str]:  # fmt: skip
    own = {
        "RANK": str(rank),
        "LOCAL_RANK": str(local_rank),
        "GANGLINE_HEARTBEAT": str(environment.home / "heartbeat" / str(rank)),
        "GANGLINE_RAN": str(environment.out / "ranks" / f"ran-{rank}.jsonl"),  # each rank may read files of its own
        "GANGLINE_PREFIX": str(environment.rank_prefix),
        "GANGLINE_PROCESSES": str(environment.processes / f"{rank}.jsonl"),
    }
    if environment.outputs is not None and environment.outputs.metrics is not None:
        own["GANGLINE_METRICS_FILE"] = str(environment.code / plan.program.folder / environment.outputs.metrics)
        own["GANGLINE_METRICS_WRITERS"] = str(environment.metrics_writers)
    if plan.program.command and plan.program.distributed:
        own |= framework_environ(
            rank=rank, nodes=shape.nodes, per_node=shape.per_node, master_addr=environment.master_addr,
            master_port=port, on_loopback=environment.on_loopback,
        )  # fmt: skip
    return own


def hide_torchrun_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` with torchrun's variables under hidden names: programs that find them would wait for other ranks."""
    hidden = {OWN_NAME + name: environ[name] for name in TORCHRUN if name in environ}
    return {name: value for name, value in environ.items() if name not in TORCHRUN} | hidden


def tracking_environ(environ: Mapping[str, str], *, writes: bool, home: Path) -> dict[str, str]:
    """`environ` of a rank whose program may track by itself; one that does not write keeps nothing and has no token.

    Args:
        environ: Names in GANGLINE_TRACKERS what the program joins; without it the program tracks as it likes.
        writes: The rank is that of the run in the trackers.
        home: Of the gang; what MLflow is sent otherwise lies in it and goes with it.
    """
    kinds = [word.partition("=")[0] for word in environ.get(TRACKERS_KEY, "").split()]
    found = dict(environ)
    if "mlflow" in kinds and not (writes and environ.get("MLFLOW_RUN_ID")):
        found = {name: value for name, value in found.items() if not name.startswith("MLFLOW_")}
        found |= {"MLFLOW_TRACKING_URI": (home / "mlflow").as_uri(), "MLFLOW_ALLOW_FILE_STORE": "true"}
    if "wandb" in kinds and not writes:
        found = {name: value for name, value in found.items() if not name.startswith("WANDB_")}
        found["WANDB_MODE"] = "disabled"
    return found


def _plan_file(environment: KeeperEnvironment, plan: Plan) -> Path:
    """File of `plan` for the ranks: the gang's own, or another one for another world size."""
    if plan.world_size == environment.world_size:
        return environment.plan
    path = environment.home / f"plan-{plan.world_size}.json"
    replace_file(path, plan.to_json(), durable=False)
    return path


def shared_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """Variables of every rank and of the warm parent: torch and numpy read some of them at import."""
    defaults = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    inherited = {name: value for name, value in environ.items() if name != "PYTHONSAFEPATH"}  # for the keeper only
    return (
        defaults
        | inherited
        | {
            "PYTHONHASHSEED": "0",
            "TORCH_FR_BUFFER_SIZE": "2000",
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
            "TORCHELASTIC_USE_AGENT_STORE": "True",  # env:// programs use the keeper's store, rank 0 opens none
        }
    )


def collectives_environ(plan: Plan) -> dict[str, str]:
    """Variables of NCCL from the plan; none if it chooses itself or is not used."""
    if plan.device != "cuda" or plan.collectives == "auto":
        return {}
    return {"NCCL_ALGO": plan.collectives.capitalize()}


def _argv(plan: Plan, python: str, *, search_path: str | None) -> tuple[str, ...]:
    command = plan.program.command
    if not command:
        return (python, *TASK_MODULE)
    argv = program_words(command, seed=plan.seed, model=plan.model)
    return (python, *argv[1:]) if argv[0] in ("python", "python3") else with_pipefail(argv, search_path)
