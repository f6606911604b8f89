"""A run that stops before its schedule measures a commit and stands for nothing: no base, no version, no branch."""

from dataclasses import replace

import pytest
from tests.line import repositories
from tests.report import records

from gangline.errors import ConfigError
from gangline.git.repository import Repository
from gangline.line.record.earlier_runs import find_earlier_runs
from gangline.line.request.run_lookup import look_up_run
from gangline.registry.publish_rules import check_rules, stopped_early
from gangline.spec.config.line import Line, ProjectTable, TrainTable
from gangline.spec.config.load import load_line_text


def cut(record):
    return replace(record, inputs=replace(record.inputs, values={**record.inputs.values, "train.stop_at": 60}))


def test_it_is_never_published():
    line = Line(project=ProjectTable(name="bytegpt", task="model:X"), train=TrainTable(steps=120, global_batch=2))
    assert check_rules(records.passed(), line) is None
    assert "train.stop_at" in check_rules(cut(records.passed()), line).reason
    assert stopped_early(cut(records.passed()))
    assert not stopped_early(records.passed())


def test_it_is_not_a_base_of_what_comes_after_and_a_commit_is_known_by_its_whole_run(workspace):
    repository = Repository.at(workspace.repo)
    first = repository.commit()
    for number, change in enumerate((cut, lambda record: record)):
        record = change(records.passed())
        run = replace(record.run, id=f"cheap-{first[:8]}-aaaaa{'b' if number else 'c'}", project="cheap",
                      created=f"2026-03-0{2 - number}T00:00:00Z")  # fmt: skip
        placed = replace(record, run=run, commit=replace(record.commit, sha=first, tree=repository.tree(first)))
        workspace.store.put(f"{placed.prefix}/record.json", placed.to_json())
        if not number:
            later = repositories.commit(workspace.repo, {"x": "1"})
            assert base(workspace, later) is None
    assert base(workspace, later).run.id.endswith("b")
    assert look_up_run(workspace.store, workspace.repo, first).run.id.endswith("b")


def base(workspace, commit):
    return find_earlier_runs(
        workspace.store, Repository.at(workspace.repo), project="cheap", commit=commit, run="none", holds=lambda _: True
    ).base


def test_a_run_of_a_branch_neither_stops_one_nor_is_stopped_by_one(workspace):
    repositories.git(workspace.repo, "checkout", "-q", "-b", "work")
    workspace.run(until="plan")
    measured = workspace.run(until="plan", overrides=("train.stop_at=2",))
    sha = repositories.commit(workspace.repo, {"x": "1"})
    workspace.run(until="plan", commit=sha, overrides=("train.stop_at=2",))
    assert {each.run.cancel_requested for each in workspace.records()} == {None}
    newer = workspace.run(until="plan", commit=sha)
    stopped = {each.run.id: each.run.cancel_requested for each in workspace.records() if each.run.cancel_requested}
    assert measured.run.id not in stopped
    assert set(stopped.values()) == {f"superseded by {newer.run.id}"}


@pytest.mark.parametrize("step", [0, 5])
def test_a_step_that_is_none_of_the_schedule_is_refused(step):
    with pytest.raises(ConfigError, match=r"train\.stop_at"):
        load_line_text(repositories.LINE, file="line.toml", overrides=(f"train.stop_at={step}",))
