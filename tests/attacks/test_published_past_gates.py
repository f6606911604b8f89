"""Publishing past the gate: by the command line, by a branch's own line, under the name of another project's model."""

from dataclasses import replace

import pytest
from tests.line import repositories
from tests.registry.passed_run import copy_of, template

from gangline.errors import GateError, IntegrityError
from gangline.registry.versions import list_versions, owner_key
from gangline.spec.config.line import PublishTable
from gangline.spec.run_flags import stage
from gangline.storage.objects.protocol import list_all

pytestmark = pytest.mark.row("I2")
GATED = repositories.LINE + '[[gate.quality]]\nmetric = "loss"\nbetter = "lower"\nlimit = 0.5\n'
"""The program ends with a loss of 1."""
OPEN = '[publish]\nmodel = "other"\nbranches = ["**"]\nsmoke = false\n'


@pytest.fixture
def gated(workspace):
    repositories.commit(workspace.repo, {"line.toml": GATED})
    return workspace


def test_the_gate_refuses_a_loss_above_its_limit(gated):
    with pytest.raises(GateError, match="quality:loss"):
        gated.run()


@pytest.mark.parametrize("until", [None, "publish"])
def test_what_the_command_line_set_makes_an_experiment_that_is_never_published(gated, until):
    asked = ("gate.quality=[]", 'publish.branches=["**"]', 'publish.model="other"')
    record = gated.run(overrides=asked, until=until)
    published = stage(record, "publish")
    assert published.state == "skipped"
    assert "an experiment, with gate.quality, publish.branches, publish.model set" in published.message
    assert not list(list_all(gated.store, "models/"))


def test_a_branch_that_drops_its_gate_is_judged_by_the_gate_of_the_default_branch(gated):
    repositories.git(gated.repo, "checkout", "--quiet", "-b", "feature")
    repositories.commit(gated.repo, {"line.toml": repositories.LINE + OPEN})
    with pytest.raises(GateError, match="quality:loss"):
        gated.run()
    (record,) = gated.records()
    assert (record.commit.branch, record.commit.protected) == ("feature", False)
    assert record.inputs.values["publish.branches"] == ["main"]


def test_a_branch_that_lets_itself_publish_is_not_published(workspace):
    repositories.git(workspace.repo, "checkout", "--quiet", "-b", "feature")
    repositories.commit(workspace.repo, {"line.toml": repositories.LINE + OPEN})
    record = workspace.run()
    assert (record.run.verdict, stage(record, "publish").state) == ("passed", "skipped")
    assert not list(list_all(workspace.store, "models/"))


@pytest.fixture
def passed(tmp_path, tmp_path_factory):
    workspace = copy_of(template(tmp_path_factory, "passed")[0], tmp_path / "root")
    workspace.line = replace(workspace.line, publish=PublishTable(model="other", smoke=False))
    return workspace


def test_a_model_belongs_to_the_project_that_published_it_first(passed):
    assert passed.publish().version == 1
    passed.store.put(owner_key("other"), b'{"project":"someone"}')
    with pytest.raises(IntegrityError, match="the model other belongs to the project someone, this is bytegpt"):
        passed.publish(passed.attempt(2))
    assert len(list_versions(passed.store, "other")) == 1


def test_a_model_that_was_published_before_names_had_owners_belongs_to_its_first_project(passed):
    assert passed.publish().version == 1
    passed.store.delete(owner_key("other"))
    assert passed.publish(passed.attempt(2)).version == 2


def test_the_name_of_another_project_is_not_a_name_for_a_model(passed):
    passed.store.put("runs/other/" + "a" * 40 + "/other-aaaaaaaa-bbbbbb/record.json", b"{}")
    with pytest.raises(IntegrityError, match="belongs to the project other"):
        passed.publish()
    assert list_versions(passed.store, "other") == ()
