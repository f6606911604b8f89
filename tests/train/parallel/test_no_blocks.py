"""A model without blocks is one block: what is asked of blocks is done to it as a whole."""

import shutil

import pytest
from tests.train import gang as gang_module
from tests.train.gang import tiny_plan

from gangline.spec.plan import Memory, ProgramSpec

CODE = """
from model import Tiny
from torch import nn


class Flat(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(4, 8), nn.Linear(8, 1)

    def forward(self, x):
        return self.outer(self.inner(x).tanh()).squeeze(-1)


class FlatPoints(Tiny):
    hints = None

    def build_model(self, options):
        return Flat()

    def evaluate(self, model, batch):
        waits = hasattr(model.forward, "__wrapped__")
        return {"waits": (waits, 1), "compiled": (model._compiled_call_impl is not None, 1)}
"""


def metrics_of(gang, **changes):
    (gang.code / "flat.py").write_text(CODE)
    plan = tiny_plan("none", steps=2, program=ProgramSpec(task="flat:FlatPoints"), **changes)
    assert gang.run(plan, TORCHINDUCTOR_COMPILE_THREADS="1") == [0], gang.log()
    return gang.result().jobs[0].metrics


@pytest.mark.parametrize("offload", ["none", "activations"])
def test_its_activations_wait_on_the_host(make_gang, offload):
    assert metrics_of(make_gang(), memory=Memory(offload=offload))["waits"] == (offload == "activations")


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler: no g++ on the PATH")
def test_it_is_compiled(make_gang, monkeypatch):
    monkeypatch.setattr(gang_module, "DEADLINE_SECONDS", 600.0)
    assert metrics_of(make_gang(), compile=True)["compiled"] == 1
