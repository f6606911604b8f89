"""Blocks through torch.compile: the weights of one process, and no block compiled a second time."""

import json
import shutil

import pytest
from tests.train import gang as gang_module
from tests.train.parallel.memory_plans import STEPS, one_process, plan_of
from tests.train.trained import trained, weight_gap

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler: no g++ on the PATH"),
]


@pytest.fixture
def patient(monkeypatch):
    """A gang that compiles takes its time."""
    monkeypatch.setattr(gang_module, "DEADLINE_SECONDS", 600.0)


@pytest.mark.proves("compile", oracle="one process", gate="1e-5")
@pytest.mark.parametrize(
    ("strategy", "memory"), [("ddp", {}), ("fsdp", {}), ("fsdp", {"activation_checkpointing": "selective"})]
)
def test_compiled_blocks_train_the_weights_of_one_process(make_gang, reached, patient, strategy, memory):
    wanted, losses = one_process()
    gang = make_gang()
    plan = plan_of(strategy, "Compiled", compile=True, memory=memory)
    found, own = trained(gang, plan, TORCHINDUCTOR_COMPILE_THREADS="1")  # a pool of compilers each imports torch
    assert weight_gap(found, wanted) <= 1e-5
    reached(weight_gap(found, wanted))
    assert own == pytest.approx(losses, rel=1e-5)
    for rank in range(plan.world_size):
        seen = json.loads((gang.home / f"compiled-{rank}.json").read_text())
        assert seen == {"graphs": [1] * STEPS * plan.accumulation, "breaks": 0}  # one for all blocks and steps
    assert any((gang.home / "compiled").iterdir())
