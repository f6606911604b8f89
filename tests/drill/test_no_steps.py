"""A program of which an earlier run says that it tells no steps: refused before it trains again, and not offered."""

import pytest
from tests.line import repositories

from gangline.drill.run import drill
from gangline.errors import ConfigError, UsageError
from gangline.report.next_commands import next_steps

PLAIN = "print('training')  # gangline may come later\n"
BEATS = "from gangline.train import heartbeat\nfor step in range(3):\n    heartbeat.beat(step)\n"
DRILL = "gangline drill kill-rank"


def rehearse(workspace, **wish):
    return drill("kill-rank", repo=workspace.repo, **workspace.where, tell=lambda _line: None, **wish)


def test_a_program_that_reported_no_step_in_an_earlier_run_of_the_commit_is_refused_before_it_trains(workspace):
    repositories.commit(workspace.repo, {"answer.py": PLAIN})
    record = workspace.run()
    assert record.run.verdict == "passed"
    assert DRILL not in next_steps(record)
    with pytest.raises(ConfigError, match=f"reported none in run {record.run.id} of this commit") as refused:
        rehearse(workspace)
    assert refused.value.exit_code == 10
    assert [each.run.id for each in workspace.records()] == [record.run.id]


@pytest.mark.parametrize("program", [BEATS, repositories.PROGRAM + "# of gangline\n"])
def test_a_program_that_reports_steps_by_heartbeats_or_its_result_is_offered_a_drill(workspace, program):
    repositories.commit(workspace.repo, {"answer.py": program})
    record = workspace.run()
    assert DRILL in next_steps(record)
    with pytest.raises(UsageError, match="--step 4: the run has 4 steps"):
        rehearse(workspace, step=4)


def test_another_commit_is_judged_by_its_own_runs(workspace):
    repositories.commit(workspace.repo, {"answer.py": PLAIN})
    workspace.run()
    repositories.commit(workspace.repo, {"answer.py": BEATS})
    with pytest.raises(UsageError, match="--step 4: the run has 4 steps"):
        rehearse(workspace, step=4)
