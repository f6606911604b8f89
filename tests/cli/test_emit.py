"""`gangline emit` refuses what it would otherwise pass over in silence."""

from pathlib import Path

import pytest

from gangline.cli.commands.emit import command
from gangline.errors import UsageError


def test_an_unknown_kind_is_refused_with_those_there_are():
    with pytest.raises(UsageError, match="trainjob, job, jobset, runtime, kfp, kserve, jenkins"):
        command("moon")


@pytest.mark.parametrize(
    ("kind", "options"),
    [("kfp", {"check": True}), ("kfp", {"cluster": Path("facts.json")}), ("runtime", {"check": True})],
)
def test_options_that_a_kind_has_no_use_for_are_refused(kind, options):
    with pytest.raises(UsageError, match=f"leave them out for {kind}"):
        command(kind, **options)


def test_a_jenkins_gets_its_files_and_may_ask_for_them_again(tmp_path):
    command("jenkins", out=tmp_path)
    command("jenkins", out=tmp_path)
    written = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert {"jenkins/vars/gangline.groovy", "jenkins/vars/gangStage.groovy", "jenkins/agents/line.yaml"} <= written
    assert {"jenkins/casc/jenkins.yaml", "jenkins/casc/plugins.txt"} <= written
    assert {"jenkins/pods/cloud.yaml", "jenkins/plain/agent.yaml"} <= written


def test_a_file_that_somebody_changed_is_not_overwritten(tmp_path):
    mine = tmp_path / "jenkins" / "vars" / "gangline.groovy"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    with pytest.raises(UsageError, match=r"gangline.groovy in .* say something else"):
        command("jenkins", out=tmp_path)
    assert mine.read_text() == "mine"
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [mine]


def test_what_a_jenkins_gets_is_about_no_run():
    with pytest.raises(UsageError, match="the same for every run"):
        command("jenkins", "demo-9f31c2a0-k7q2mx")


@pytest.mark.parametrize(("run", "options"), [(None, {}), ("bytegpt", {"cluster": Path("facts.json")})])
def test_an_inference_service_is_about_a_model(run, options):
    with pytest.raises(UsageError, match="wanted gangline emit kserve MODEL"):
        command("kserve", run, **options)
