"""T9: a batch that is not finite: the training stops in that step or does what the line says, and promotes nothing."""

from dataclasses import replace

import pytest
from tests.faults.t.ranks import chance
from tests.registry.passed_run import git
from tests.train.gang import ROOT, tiny_plan

from gangline.checkpoint.format.manifest import list_checkpoints
from gangline.errors import NonFiniteError
from gangline.line.record import runs
from gangline.line.stages.run_line import run_line
from gangline.registry.versions import list_versions
from gangline.spec.config.site import Site
from gangline.spec.mesh import Mesh
from gangline.spec.plan import Recovery
from gangline.storage import site_paths

pytestmark = [
    pytest.mark.row("T9", full="100 poisoned trainings, 100 poisoned lines"),
    pytest.mark.timeout(300),
    pytest.mark.long,
]
STEPS = 8
LINE = """
[project]
name = "poisoned"
task = "model:Tiny"
[model]
width = 8
[optimizer.elementwise]
rule = "adamw"
lr = 1e-3
[train]
steps = 8
global_batch = 8
ranks = 2
strategy = "ddp"
env = {{ STRIKE = "nan:{rank}:{step}" }}
[train.recovery]
non_finite = "{answer}"
"""


def full(low, high):
    return [pytest.param(number, marks=pytest.mark.slow) for number in range(low, high)]


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
@pytest.mark.parametrize("number", [0, *full(1, 50)])
def test_it_stops_in_that_step_and_saves_nothing_of_it(make_gang, seed, number, strategy):
    """100 at full size."""
    dice = chance("T9", seed + number)
    rank, step = dice.randrange(2), dice.randint(1, STEPS)
    gang, plan = make_gang(), tiny_plan(strategy, steps=STEPS)
    assert gang.run(plan, STRIKE=f"nan:{rank}:{step}") == [31, 31], gang.log()
    for each in (0, 1):
        assert max((e["step"] for e in gang.events(each, "step")), default=0) == step - 1
        assert gang.events(each, "non_finite")[0]["step"] == step
    saved = [each.step for each in list_checkpoints(gang.store, f"{plan.run_prefix}/checkpoints")]
    assert max(saved, default=0) < step


@pytest.mark.parametrize(
    "mesh", [Mesh(tp=2), pytest.param(Mesh(dp_shard=2, tp=2), marks=pytest.mark.slow)], ids=["tp", "fsdp x tp"]
)
@pytest.mark.parametrize("rank", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_ranks_that_share_a_sample_judge_alike_no_matter_who_sees_it_first(make_gang, mesh, rank):
    gang = make_gang()
    plan = replace(tiny_plan("none", steps=STEPS, micro_batch=4), strategy="explicit", mesh=mesh)
    assert gang.run(plan, STRIKE=f"nan:{rank}:4") == [31] * mesh.world_size, gang.log()
    for each in range(mesh.world_size):
        assert [event["step"] for event in gang.events(each, "non_finite")] == [-(-4 // plan.accumulation)]


def test_a_batch_that_stays_bad_is_skipped_so_often_and_no_more(make_gang):
    gang = make_gang()
    recovery = Recovery(non_finite="skip", max_events=2)
    assert gang.run(tiny_plan("ddp", steps=STEPS, recovery=recovery), STRIKE="poison:1:3") == [31, 31], gang.log()
    reported = [(each["step"], each["answer"]) for each in gang.events(event="non_finite")]
    assert reported == [(3, "skip"), (4, "skip"), (5, "stop")]


def test_rollbacks_come_to_an_end(make_gang):
    gang = make_gang()
    recovery = Recovery(non_finite="rollback")
    assert gang.run(tiny_plan("fsdp", steps=STEPS, recovery=recovery), STRIKE="poison:1:4") == [31, 31], gang.log()
    answers = [each["answer"] for each in gang.events(event="non_finite")]
    assert answers == ["rollback"] * 3 + ["stop"]
    assert "3 rollbacks did not help" in gang.events(event="done")[-1]["reason"]
    assert [each["step"] for each in gang.events(event="resumed")] == [3, 3, 3]


@pytest.mark.slow
@pytest.mark.parametrize("answer", ["stop", "rollback"])
@pytest.mark.parametrize("number", range(50))
def test_line_promotes_nothing_that_was_not_finite(tmp_path, seed, number, answer):
    folder = tmp_path / "repo"
    folder.mkdir()
    (folder / "model.py").write_bytes((ROOT / "tests" / "train" / "code" / "model.py").read_bytes())
    kind = "poison" if answer == "rollback" else "nan"
    step = chance("T9", seed + number).randint(2, STEPS)
    line = LINE.format(rank=1, step=step, answer=answer).replace("nan:", f"{kind}:")
    (folder / "line.toml").write_text(line)
    for words in (("init", "--quiet"), ("add", "--all"), ("commit", "--quiet", "-m", "first")):
        git(folder, *words)
    environ = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    with pytest.raises(NonFiniteError):
        run_line(folder, site=Site(), environ=environ)
    store = site_paths.open_site_store(folder, Site(), environ)
    assert list(list_versions(store, "poisoned")) == []
    (record,) = runs.list_runs(store)
    assert (record.run.exit_code, record.stages["train"].state) == (31, "failed")
