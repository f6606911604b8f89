"""A training on two nodes whose steps take a while, so that it can be struck between them."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.keeper.coordination.nodes import GangOfNodes
from tests.ports import free_port
from tests.train.gang import ROOT

from gangline.spec.plan import Plan


@contextmanager
def slow_nodes(root: Path, plan: Plan) -> Iterator[GangOfNodes]:
    """Both nodes started; each step takes 0.1 s more than it needs."""
    gang = GangOfNodes(root, plan, 2, {"GANGLINE_CONTROL_PORT": str(free_port())})
    shutil.copytree(ROOT / "tests" / "train" / "code", root / "code")
    model = root / "code" / "model.py"
    strike = "def strike(step, outputs):"
    model.write_text(model.read_text().replace(strike, f"{strike}\n    time.sleep(0.1)"))
    for node in range(2):
        gang.start(node)
    yield gang
    gang.end_everything()
