"""P11: our own code has no finding of the security rules; who is let off a rule says why on its line."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.row("P11")
ROOT = Path(__file__).resolve().parents[3]
OURS = ("src", "components", "pipelines", "jenkins", "monitoring", "manifests", "requirements")
SUPPRESSED = (
    re.compile(r"#\s*noqa\b:?(?P<codes>[A-Z0-9, ]*)(?P<reason>.*)"),
    re.compile(r"#\s*type: ignore\b(?P<codes>\[[a-z, -]+\])?(?P<reason>.*)"),
)
PLANTED = """
import pickle, subprocess, tempfile
def run(name, data):
    subprocess.run(f"ls {name}", shell=True)
    return pickle.loads(data), eval(name), tempfile.mktemp()
"""


def findings(*paths, text=None):
    ruff = shutil.which("ruff", path=str(Path(sys.executable).parent)) or pytest.skip("no ruff here: make setup-dev")
    command = [ruff, "check", "--output-format=concise", "--no-cache", *paths]
    return subprocess.run(command, cwd=ROOT, input=text, capture_output=True, text=True, check=False).stdout


def suppressions():
    """(place, codes, reason) of every rule that a line of ours is let off."""
    for folder in OURS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
                for found in filter(None, (each.search(line) for each in SUPPRESSED)):
                    yield f"{path.relative_to(ROOT)}:{number}", found["codes"], found["reason"].strip(" -#")


def test_no_rule_of_security_finds_anything():
    assert "All checks passed" in findings(*OURS)


def test_the_rules_find_what_they_are_for():
    found = findings("--stdin-filename=src/gangline/serve/planted.py", "-", text=PLANTED)
    assert {"S301", "S307", "S306", "S602"} <= set(re.findall(r"S\d{3}", found))


def test_who_is_let_off_says_which_rule_and_why():
    every = list(suppressions())
    assert len(every) > 10
    assert [place for place, codes, reason in every if not (codes or "").strip() or not reason] == []
