"""Gangs of several nodes: real keepers, each in a folder of its own as in a pod, over small programs without torch."""

import textwrap

import pytest
from tests.keeper.coordination.nodes import HEAD, GangOfNodes
from tests.ports import free_port

from gangline.spec.mesh import Mesh
from gangline.spec.plan import CheckpointPolicy, Plan, ProgramSpec, Recovery, Size


@pytest.fixture
def nodes(tmp_path):
    """Function that starts a gang; everything of it is gone afterwards."""
    gangs: list[GangOfNodes] = []

    def start(
        program: str,
        *,
        num_nodes: int = 2,
        ranks: int = 1,
        restarts: int = 3,
        absent=(),
        sizes: tuple[int, ...] = (),
        **environ: str,
    ):
        plan = Plan(
            run="r", project="p", name="ddp", run_prefix="runs/p/c/r",
            program=ProgramSpec(command=("python", "program.py")),
            strategy="ddp", mesh=Mesh(dp_replicate=num_nodes * ranks), steps=10, global_batch=num_nodes * ranks,
            micro_batch=1, checkpoint=CheckpointPolicy(every=5), recovery=Recovery(max_events=restarts),
            sizes=tuple(Size(name="ddp", strategy="ddp", mesh=Mesh(dp_replicate=n), micro_batch=1) for n in sizes),
        )  # fmt: skip
        root = tmp_path / f"gang-{len(gangs)}"
        (root / "code").mkdir(parents=True)
        (root / "code" / "program.py").write_text(HEAD + textwrap.dedent(program))
        gang = GangOfNodes(root, plan, num_nodes, {"GANGLINE_CONTROL_PORT": str(free_port()), **environ})
        gangs.append(gang)
        for node in range(num_nodes):
            if node not in absent:
                gang.start(node)
        return gang

    yield start
    for gang in gangs:
        gang.end_everything()
