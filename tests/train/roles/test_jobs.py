"""Evaluate and prove gangs: seeds one after another, checkpoints under another plan."""

import pytest
from tests.train.gang import Gang, tiny_plan

from gangline.spec.plan import Job


@pytest.fixture
def trained(make_gang):
    gang = make_gang()
    assert gang.run(tiny_plan("ddp")) == [0, 0], gang.log()
    return gang


def beside(gang, warm, name):
    """A second gang of the same run: its own folder, the same store."""
    other = Gang(gang.home / name, warm, gang.code)
    other.store_url, other.store = gang.store_url, gang.store
    return other


def test_evaluate_measures_the_checkpoint_and_trains_other_seeds(trained, warm):
    gang, own = beside(trained, warm, "evaluate"), trained.result()
    jobs = (Job(seed=1, train=False, checkpoint=own.checkpoint), Job(seed=2), Job(seed=3, steps=4))
    assert gang.run(tiny_plan("ddp", role="evaluate", jobs=jobs)) == [0, 0], gang.log()
    result = gang.result()
    assert [(job.seed, job.step, len(job.losses)) for job in result.jobs] == [(1, 6, 0), (2, 6, 6), (3, 4, 4)]
    assert result.jobs[0].metrics == own.jobs[0].metrics
    assert result.jobs[1].losses != result.jobs[2].losses
    assert result.metric_units == {"error": "abs"}
    assert own.export_names == {"last.weight": "lm_head.weight"}
    assert [each["index"] for each in gang.events(event="job_started")] == [0, 1, 2]
    assert gang.events(event="saved") == []


@pytest.mark.parametrize("strategy", ["fsdp", "none"])
def test_prove_opens_every_tensor_alike_and_replays_the_losses(trained, warm, strategy):
    gang, own = beside(trained, warm, "prove"), trained.result()
    jobs = (Job(seed=1, train=False, checkpoint=own.checkpoint), Job(seed=1, steps=5))
    plan = tiny_plan(strategy, role="prove", jobs=jobs)
    assert set(gang.run(plan)) == {0}, gang.log()
    result = gang.result()
    tensors = 12 * 4  # each parameter, its two moments and its count of steps
    assert (result.digests.total, result.digests.equal, result.digests.different) == (tensors, tensors, ())
    replayed = dict(result.jobs[0].losses)
    assert replayed == pytest.approx({step: loss for step, loss in own.jobs[0].losses if step <= 5}, rel=1e-5)


def test_checkpoint_that_is_gone_is_refused_by_name(make_gang):
    gang = make_gang()
    prefix = "runs/bytegpt/0000000/bytegpt-0000000-aaaaaa/checkpoints/step-00000099"
    jobs = (Job(seed=1, train=False, checkpoint=prefix),)
    assert gang.run(tiny_plan("none", role="evaluate", jobs=jobs)) == [50], gang.log()
    assert f"{prefix}/manifest.json, found nothing" in gang.log()
