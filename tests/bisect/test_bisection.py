"""From words to an answer over real commits, real runs and real records; programs stand in for trainings."""

import json
from dataclasses import replace

import pytest
from tests.line import repositories

from gangline.bisect.bisection import BisectRequest, prepare, read_culprit
from gangline.bisect.recorded_values import MetricAtStep
from gangline.bisect.repository_measurer import RepositoryMeasurer
from gangline.errors import UsageError
from gangline.git.repository import Repository
from gangline.line.record.earlier_runs import find_earlier_runs
from gangline.line.record.observer import SilentObserver
from gangline.line.record.runs import list_runs
from gangline.line.run.cancel import cancel_run
from gangline.line.run.driver import open_run_workspace
from gangline.report.bisection.pages import render_html_bisection, render_markdown_bisection
from gangline.report.bisection.text import render_bisection
from gangline.spec.config.site import SandboxTable

pytestmark = pytest.mark.long

LINE = """\
[project]
name = "cheap"
command = ["python", "answer.py"]
[train]
steps = 8
global_batch = 2
ranks = 1
"""
PROGRAM = """\
import json, os, pathlib
LEVEL = {level}  # {number}
plan = json.loads(pathlib.Path(os.environ["GANGLINE_PLAN"]).read_text())
last, seed = plan["stop_at"] or plan["steps"], plan["seed"]
losses = [3.0 - n / 8 + (LEVEL if n > 3 else 0) + 0.001 * (seed * 7 % 5) for n in range(1, last + 1)]
out = pathlib.Path(os.environ["GANGLINE_OUT"])
if os.environ["RANK"] == "0":
    rows = [{{"seed": seed, "step": n, "loss": loss}} for n, loss in enumerate(losses, start=1)]
    (out / "metrics.jsonl").write_text("".join(json.dumps(row) + "\\n" for row in rows))
    (out / "result.json").write_text(json.dumps({{"role": "train", "final_step": last}}))
"""


@pytest.fixture
def past(workspace):
    """Six commits, the fourth of which adds to every loss after step 3; nobody has to look at the machine."""
    shas = []
    for number in range(6):
        program = PROGRAM.format(level=0.0 if number < 3 else 0.5, number=number)
        shas.append(repositories.commit(workspace.repo, {"line.toml": LINE, "answer.py": program}, f"Change {number}"))
        repositories.settle_inventory(workspace.repo)
    return workspace, shas


def begin(workspace, shas, **changes):
    here = open_run_workspace(workspace.repo, site=workspace.site, environ=workspace.environ, observer=SilentObserver())
    return prepare(here, replace(BisectRequest(metric="loss", good=shas[0], bad=shas[-1], seeds=2), **changes))


def test_the_commit_is_found_by_runs_that_are_cut_short_and_found_again_for_nothing(past):
    workspace, shas = past
    search = begin(workspace, shas, metric="loss@5")
    assert (search.state.at, search.state.steps) == (5, 8)
    forecast = search.forecast
    assert (forecast.least, forecast.trainings, forecast.most) == (4 + 3, 4 + 3 * 2, 2 * 8 + 3 * 8)
    states = []
    ended = search.run(tell=states.append)
    assert (ended.ending, ended.first_bad) == ("found", shas[3])
    records = list(list_runs(workspace.store))
    assert {each.inputs.values["train.stop_at"] for each in records} == {5}
    assert {each.run.verdict for each in records} == {"passed"}
    assert max(each.curve.points[-1].step for each in records) == 5
    assert ended.spent_seconds == pytest.approx(sum(each.ledger.allocated_seconds for each in records), rel=0.3)
    past_of_next = find_earlier_runs(
        workspace.store,
        Repository.at(workspace.repo),
        project="cheap",
        commit=shas[-1],
        run="none",
        holds=lambda _: True,
    )
    assert past_of_next.base is None
    whole = replace(begin(workspace, shas, metric="loss@4"), state=replace(ended, ending=None))
    assert whole.forecast.hours * 3600 == pytest.approx(whole.forecast.trainings * ended.spent_seconds / 7, rel=0.5)
    with pytest.raises(UsageError, match="found 'nosuch'; it has loss"):
        begin(workspace, shas, metric="nosuch")
    again = begin(workspace, shas, metric="loss@5")
    assert again.state.ending == "found"
    assert again.run(tell=states.append) == ended
    assert len(list(list_runs(workspace.store))) == len(records)
    check_pages(workspace, ended)


def check_pages(workspace, ended):
    culprit = read_culprit(Repository.at(workspace.repo), ended)
    assert [(each.path, each.added, each.removed) for each in culprit.files] == [("answer.py", 1, 1)]
    text = render_bisection(ended, culprit, width=80)
    assert text.startswith(f"FOUND  {ended.first_bad[:8]} Change 3")
    assert max(map(len, text.splitlines())) <= 80
    page = render_html_bisection(ended, culprit)
    assert "+LEVEL = 0.5" in page
    assert "<script" not in page
    assert "first bad commit" in render_markdown_bisection(ended, culprit)


def test_ends_that_reported_metrics_alone_say_what_a_training_costs(past):
    workspace, _ = past
    line = LINE.replace('"answer.py"]', '"answer.py"]\nmetrics = "metrics.json"')
    program = "import json\njson.dump({{'error': {0}}}, open('metrics.json', 'w'))\n"
    shas = [
        repositories.commit(workspace.repo, {"line.toml": line, "answer.py": program.format(value)}) for value in (1, 2)
    ]
    record = workspace.run(commit=shas[0])
    assert not record.curve.points
    search = begin(workspace, shas, metric="error")
    assert search.forecast.hours == pytest.approx(
        search.forecast.trainings * record.plan.measured.wall_seconds / 3600, rel=0.01
    )
    with pytest.raises(UsageError, match="found 'accuracy'; it has error"):
        begin(workspace, shas, metric="accuracy")


def test_a_training_that_somebody_cancelled_is_begun_again(past):
    workspace, shas = past
    numbers = ("train.stop_at=5", "train.seed=1", "evaluate.seeds=1", "gate.quality=[]", 'prove.plan="off"')
    left = workspace.run(commit=shas[0], overrides=numbers, until="plan")
    cancel_run(workspace.repo, left.run.id, **workspace.where, reason="in the way")
    search = begin(workspace, shas, metric="loss@5")
    measurer = RepositoryMeasurer(
        workspace=search.workspace, wanted=MetricAtStep(metric="loss", at=5, since=search.state.created)
    )
    assert measurer.train(shas[0], [1]) == ""
    assert sorted(each.run.attempt for each in workspace.records()) == [1, 2]
    assert set(measurer.recorded(shas[0]).values) == {1}


def test_a_training_of_an_earlier_search_is_made_again_where_it_read_what_has_changed_since(past, tmp_path):
    workspace, _ = past
    workspace.site = replace(workspace.site, sandbox=SandboxTable(mode="off"))
    level = tmp_path / "level.txt"
    level.write_text("0.0")
    program = PROGRAM.format(level=f"float(open({str(level)!r}).read())", number=9)
    shas = [repositories.commit(workspace.repo, {"answer.py": program + "#" * end}) for end in range(2)]
    search = begin(workspace, shas, metric="loss@5")
    assert search.measurer.train(shas[0], [1]) == ""
    first = search.measurer.recorded(shas[0]).values
    level.write_text("0.5")
    later = replace(search.measurer, wanted=replace(search.measurer.wanted, since="2999-01-01T00:00:00Z"))
    assert later.recorded(shas[0]).left_out == f"{level}, undeclared and changed since"
    assert later.train(shas[0], [1]) == ""
    assert later.recorded(shas[0]).values[1] == pytest.approx(first[1] + 0.5)
    assert later.train(shas[0], [1]) == "", "and not once more: the newest one read what is there now"
    assert sorted(each.run.attempt for each in workspace.records()) == [1, 2]


def test_ends_in_the_wrong_order_or_next_to_each_other_are_refused(past):
    workspace, shas = past
    with pytest.raises(UsageError, match="swap them"):
        begin(workspace, [shas[-1], shas[0]])
    with pytest.raises(UsageError, match="one commit"):
        begin(workspace, [shas[0], shas[0]])
    repositories.git(workspace.repo, "checkout", "-q", "-b", "side", shas[1])
    side = repositories.commit(workspace.repo, {"other.txt": "x"})
    with pytest.raises(UsageError, match=f"--good {shas[1][:8]}"):
        begin(workspace, [side, shas[-1]])
    with pytest.raises(UsageError, match="8 steps"):
        begin(workspace, shas, metric="loss@9")
    with pytest.raises(UsageError, match="METRIC@STEP"):
        begin(workspace, shas, metric="loss@x")


def test_a_merge_counts_as_one_commit_and_the_way_into_it_is_reported(past):
    workspace, shas = past
    repositories.git(workspace.repo, "checkout", "-q", "-b", "side", shas[1])
    repositories.commit(workspace.repo, {"other.txt": "x"}, "on the side")
    repositories.git(workspace.repo, "checkout", "-q", "main")
    repositories.git(workspace.repo, "merge", "-q", "--no-ff", "-m", "merge it", "side")
    state = begin(workspace, [shas[0], "main"]).state
    assert [each.subject for each in state.suspects] == [*(f"Change {number}" for number in range(6)), "merge it"]
    assert state.suspects[-1].parents == 2
    merged = replace(state, first_bad=state.suspects[-1].sha, ending="found")
    left = shas[1][:8]
    side = repositories.git(workspace.repo, "rev-parse", "side")[:8]
    assert read_culprit(Repository.at(workspace.repo), merged).inside == (
        f"gangline bisect loss --good {left} --bad {side}",
    )


def test_a_merge_of_three_branches_has_a_way_into_each_that_it_merged(past):
    workspace, shas = past
    for name in ("one", "two"):
        repositories.git(workspace.repo, "checkout", "-q", "-b", name, shas[-1])
        repositories.commit(workspace.repo, {f"{name}.txt": "x"}, name)
    repositories.git(workspace.repo, "checkout", "-q", "main")
    repositories.commit(workspace.repo, {"own.txt": "x"}, "own")
    repositories.git(workspace.repo, "merge", "-q", "--no-ff", "-m", "merge both", "one", "two")
    state = begin(workspace, [shas[0], "main"]).state
    found = replace(state, first_bad=state.suspects[-1].sha, ending="found")
    sides = [repositories.git(workspace.repo, "rev-parse", name)[:8] for name in ("one", "two")]
    inside = tuple(f"gangline bisect loss --good {shas[-1][:8]} --bad {side}" for side in sides)
    culprit = read_culprit(Repository.at(workspace.repo), found)
    assert culprit.inside == inside
    assert all(command in render_bisection(found, culprit) for command in inside)


def test_state_is_json_that_its_schema_describes(past):
    from jsonschema import Draft202012Validator
    from tools.json_schemas import schema_of

    from gangline.spec.bisect import BisectState

    workspace, shas = past
    state = begin(workspace, shas).state
    problems = list(Draft202012Validator(schema_of(BisectState)).iter_errors(json.loads(state.to_json())))
    assert problems == []
    assert BisectState.from_json(state.to_json()) == state


@pytest.mark.slow
def test_where_a_short_training_reports_nothing_a_whole_one_is_tried(past, monkeypatch):
    workspace, shas = past
    monkeypatch.setattr("gangline.bisect.bisection.step_to_measure", lambda *_, **__: 2)
    ended = begin(workspace, shas).run(tell=lambda _: None)
    assert (ended.at, ended.first_bad) == (8, shas[3])
    assert "at step 2 the bad end is not worse" in ended.notes[0]
    assert ended.spent_seconds > 0


@pytest.mark.long
def test_a_commit_whose_line_does_not_hold_is_passed_over(past):
    workspace, shas = past
    repositories.git(workspace.repo, "checkout", "-q", "-b", "broken", shas[1])
    broken = repositories.commit(workspace.repo, {"line.toml": "[project]\n"}, "a broken line")
    mended = repositories.commit(
        workspace.repo, {"line.toml": LINE, "answer.py": PROGRAM.format(level=0.5, number=9)}, "and mended"
    )
    repositories.settle_inventory(workspace.repo)
    ended = begin(workspace, [shas[0], mended], metric="loss@8").run(tell=lambda _: None)
    assert ended.ending == "between"
    by_sha = {each.sha: each for each in ended.suspects}
    assert by_sha[broken].side == "skipped"
    assert "line.toml" in by_sha[broken].reason
    assert by_sha[shas[1]].side == "good"


@pytest.mark.long
def test_a_budget_that_is_too_small_ends_it_with_what_is_left(past):
    workspace, shas = past
    small = begin(workspace, shas, metric="loss@8", budget_hours=1e-9).run(tell=lambda _: None)
    assert small.ending == "budget"
    assert len(list(list_runs(workspace.store))) <= 2
    assert begin(workspace, shas, metric="loss@8", budget_hours=1.0).run(tell=lambda _: None).first_bad == shas[3]
