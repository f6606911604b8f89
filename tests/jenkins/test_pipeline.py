"""The pipeline and its steps, read without a Jenkins: known steps alone, constant scripts, commands that exist."""

import re
from itertools import product

import pytest
from tests.jenkins import steps
from tests.jenkins.commands import Misused, called, parse
from tests.jenkins.files import GUIDE, PIPELINE, ROOT, VARS
from tests.jenkins.lint import lint_pipeline, lint_step, scripts

from gangline.spec.record import STAGES

RUN = "demo-9f31c2a0-k7q2mx"
PAGE = "https://jenkins.example/job/gangline/1/"
HOSTILE = (
    "$(touch owned)", "`touch owned`", "; touch owned", "a\nb", "' || touch owned", '" || touch owned', "--json", "-x",
    "%0a", "\x1b[31m", "&& touch owned", "${IFS}x", "*", "\u202e", "x" * 4000,
)  # fmt: skip
step = pytest.mark.parametrize("name", VARS)


def test_the_pipeline_is_ten_stages_of_one_command_each():
    assert lint_pipeline(PIPELINE.read_text()) == []


@step
def test_a_step_uses_what_the_pinned_plugins_have_and_nothing_else(name):
    assert lint_step(VARS[name].read_text()) == []


def test_every_plugin_that_is_needed_is_pinned_once():
    pinned = steps.pinned()
    assert {*steps.STEPS.values(), *steps.OPTIONS.values(), *steps.PARAMETERS.values()} - {steps.CORE} <= set(pinned)
    assert all(re.fullmatch(r"\d[\w.-]*", version) for version in pinned.values())
    assert len(pinned) == len([line for line in steps.PLUGINS.read_text().splitlines() if not line.startswith("#")])


def test_every_known_step_is_used():
    text = " ".join(path.read_text() for path in VARS.values())
    assert [name for name in steps.STEPS if f"{name}(" not in text] == []


@step
def test_a_step_is_short_and_explained(name):
    lines = [line.strip() for line in VARS[name].read_text().splitlines()]
    assert len([line for line in lines if line and not line.startswith(("//", "/**"))]) <= 23
    assert VARS[name].with_suffix(".txt").read_text().startswith(f"{name}(")
    assert VARS[name].read_text().startswith("/** ")


def test_a_build_ends_by_a_step_that_leaves_its_sentence_as_the_description():
    assert [name for name, path in VARS.items() if "error(" in path.read_text()] == ["gangFail"]


SENTENCES = [
    text
    for path in VARS.values()
    for text in re.findall(r"""gangFail\((?:\w+ \?: )?['"](.+)['"]\)""", path.read_text())
]
WORDS_OF_THE_GUIDE = {"${name}": "NAME", "${env.RUN}": "RUN", "${code}": "N"}


@pytest.mark.parametrize("sentence", SENTENCES)
def test_the_guide_names_the_sentence_that_a_build_ends_with(sentence):
    for hole, word in WORDS_OF_THE_GUIDE.items():
        sentence = sentence.replace(hole, word)
    assert f"`{re.split('[:,]', sentence)[0]}" in GUIDE.read_text()


def test_a_build_is_not_restarted_from_a_stage():
    """Resolve would be left out, and the commit is the branch's tip of that moment."""
    assert "disableRestartFromStage()" in PIPELINE.read_text()


def test_there_is_no_explanation_without_a_step():
    assert {path.stem for path in (ROOT / "vars").glob("*.txt")} == {*VARS, PIPELINE.stem}


SCRIPTS = [(name, script) for name, path in VARS.items() for script in scripts(path.read_text())]
every_script = pytest.mark.parametrize(
    ("name", "script"), SCRIPTS, ids=[f"{n}-{i}" for i, (n, _) in enumerate(SCRIPTS)]
)


@every_script
def test_a_script_is_one_command_that_the_command_line_knows(name, script, tmp_path):
    for stage in STAGES if '"$STAGE"' in script else ("report",):
        (arguments,) = called(
            script, {"RUN": RUN, "STAGE": stage, "REASON": "aborted", "WHO": "ada", "BUILD_URL": PAGE}, tmp_path
        )
        context = parse(arguments)
        assert context.command.name is not None
        if "stage" in arguments:
            assert context.params["name"] in STAGES
        if "BUILD_URL" in script:
            assert context.params["url"] == PAGE
            assert context.params.get("driver", "jenkins") == "jenkins"
        if "RUN" in script:
            assert context.params["run"] == RUN


def test_the_command_line_is_asked_for_real(tmp_path):
    with pytest.raises(Misused):
        parse(["stagez"])
    with pytest.raises(Misused):
        parse(["stage", "train", "--runn", RUN])


@pytest.mark.parametrize("word", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize("name", ["gangResolve", "gangCancel", "gangApprove"])
def test_words_of_strangers_stay_words(name, word, tmp_path):
    """As branch, name of the fork, person or reason: one argument, whatever stands in it, and nothing is started."""
    (script,) = scripts(VARS[name].read_text())
    strange = dict.fromkeys(("BRANCH_NAME", "CHANGE_BRANCH", "CHANGE_FORK", "REASON", "WHO"), word)
    (arguments,) = called(script, {**strange, "RUN": RUN, "CHANGE_ID": "7"}, tmp_path)
    params = parse(arguments).params
    assert word in [params.get(key) for key in ("branch", "reason", "who")]
    assert params["json"] is False
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize(("branch", "change", "fork"), list(product((None, "main"), (None, "7"), (None, "s"))))
def test_what_jenkins_knows_of_the_change_goes_along(branch, change, fork, tmp_path):
    (script,) = scripts(VARS["gangResolve"].read_text())
    known = {"BRANCH_NAME": branch, "CHANGE_ID": change, "CHANGE_FORK": fork, "CHANGE_BRANCH": change and "topic"}
    (arguments,) = called(script, {key: value for key, value in known.items() if value}, tmp_path)
    params = parse(arguments).params
    assert params["branch"] == (branch and ("topic" if change else branch))
    assert params["pull_request"] == (change and 7)
    assert params["trust"] == ("fork" if fork else "own")
    assert params["commit"] == "HEAD"
