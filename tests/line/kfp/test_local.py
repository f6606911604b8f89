"""A run under kfp's local runner: the same story as `gangline run`, and nobody left behind."""

from tests.line import repositories

from gangline.line.kfp.target import drive
from gangline.spec.record import STAGES


def kfp_run(desk, **asked):
    repositories.settle_inventory(desk.repo)
    return drive(desk.repo, driving="kfp-local", **desk.where, observer=desk.seen, **asked)


def test_a_commit_goes_through_every_stage_under_the_local_runner(desk):
    record = kfp_run(desk)
    assert record.run.verdict == "passed"
    assert desk.seen.stages == list(STAGES)
