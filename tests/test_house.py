"""The house itself: locks, links of the documentation, tasks by name, helpers that say more than their body."""

import ast
import importlib
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.source import nodes

from gangline import __version__

ROOT = Path(__file__).resolve().parent.parent
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.row("P11")
@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_lock_holds_names_versions_and_hashes_only(lock):
    text = lock.read_text()
    entries = re.findall(r"^(\S+)==\S+.*\n((?:[ \t]+--hash=sha256:[0-9a-f]{64}.*\n)+)", text, re.MULTILINE)
    names = re.findall(r"^[a-zA-Z]\S*", text, re.MULTILINE)
    assert len(entries) == len(names) > 0
    assert not re.search(r"https?:|--index|--find-links|--extra", text)


def test_locks_agree_on_every_version_they_share():
    versions = [dict(re.findall(r"^(\S+)==(\S+)", lock.read_text(), re.MULTILINE)) for lock in LOCKS]
    run, dev = (
        versions[LOCKS.index(ROOT / "requirements/run.txt")],
        versions[LOCKS.index(ROOT / "requirements/dev.txt")],
    )
    assert run.items() <= dev.items()


def test_links_of_every_page_lead_somewhere():
    targets = [
        (page, target) for page in PAGES for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text())
    ]
    assert len(targets) > len(PAGES)
    missing = [(str(page.relative_to(ROOT)), target) for page, target in targets if not (page.parent / target).exists()]
    assert missing == []


def test_the_changelog_begins_with_what_comes_next_and_then_has_this_version():
    heads = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert heads[:2] == ["Unreleased", __version__]
    assert f"defaultVersion: v{__version__}" in (ROOT / "jenkins/casc/jenkins.yaml").read_text()


def test_the_first_screen_is_one_and_names_the_test_command():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 80
    assert len(text.split()) <= 750
    assert "make test " in text


def test_tasks_that_the_documentation_names_exist():
    recipes = (ROOT / "Makefile").read_text() + (ROOT / "tests/cluster/cluster.mk").read_text()
    tasks = set(re.findall(r"^([a-z-]+):", recipes, re.MULTILINE))
    named = {task for page in PAGES for task in re.findall(r"`make ([a-z-]+)", page.read_text())}
    assert named <= tasks


def test_installer_refuses_a_profile_it_does_not_know():
    command = [sys.executable, str(ROOT / "requirements/install.py"), "prod"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "wanted `run` or `dev`, found ['prod']" in done.stderr


@pytest.fixture
def install():
    sys.path.insert(0, str(ROOT / "requirements"))
    try:
        return importlib.import_module("install")
    finally:
        sys.path.pop(0)


def test_installer_passes_on_everything_of_a_lock_but_torch_and_its_libraries(install):
    every = install.entries(ROOT / "requirements/dev.txt")
    rest = [install.name_of(entry) for entry in every if not install.TORCH_FAMILY.match(entry)]
    left_out = {install.name_of(entry) for entry in every} - set(rest)
    assert {"cattrs", "torchmetrics"} <= set(rest)
    assert {name.split("-")[0] for name in left_out} == {"torch", "triton", "cuda", "nvidia"}


@pytest.mark.parametrize("torch", ["2.11", "2.13"])
def test_an_older_torch_comes_with_its_own_libraries_and_with_hashes(install, torch):
    locks = install.locks_of("run", torch)
    newest, other = map(install.entries, locks)
    found = install.together(newest, other)
    assert install.version_of(found, "torch").startswith(f"{torch}.")
    assert all("--hash=sha256:" in entry for entry in found)
    assert {each for each in found if install.TORCH_FAMILY.match(each)} <= set(other)
    replaced = {install.name_of(each) for each in other}
    rest = [each for each in newest if not install.TORCH_FAMILY.match(each) and install.name_of(each) not in replaced]
    assert found == [*rest, *other]
    assert len(rest) > 50


def test_a_torch_without_a_lock_is_refused_with_those_that_have_one(install, capsys):
    with pytest.raises(SystemExit):
        install.locks_of("run", "2.10")
    assert "wanted one that has a lock (2.11, 2.13, 2.15), found 2.10" in capsys.readouterr().err


SHORT = 45
"""Characters of an expression that is read as fast as the name of a helper."""


def hops(every):
    """Private functions without a docstring, called once and used nowhere else, that return one short expression."""
    calls = Counter(name_of(each.func) for each in every if isinstance(each, ast.Call))
    mentions = Counter(name_of(each) for each in every if isinstance(each, (ast.Name, ast.Attribute)))
    return [
        each.name
        for each in every
        if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))
        if each.name.startswith("_") and not each.name.startswith("__") and not each.decorator_list
        if len(each.body) == 1 and isinstance(each.body[0], ast.Return) and each.body[0].value is not None
        if len(ast.unparse(each.body[0].value)) <= SHORT
        if calls[each.name] == mentions[each.name] == 1
    ]


def name_of(node):
    return getattr(node, "id", getattr(node, "attr", None))


def test_a_helper_that_is_called_once_says_more_than_its_body():
    found = {str(path.relative_to(ROOT)): names for path, every in nodes().items() if (names := hops(every))}
    assert found == {}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("def _double(x):\n    return 2 * x\n\nprint(_double(3))", ["_double"]),
        ("def _double(x):\n    return 2 * x\n\nprint(_double(3), _double(4))", []),
        ("def _double(x):\n    return 2 * x\n\nprint(*map(_double, (3, 4)))", []),
        ('def _double(x):\n    """Twice."""\n    return 2 * x\n\nprint(_double(3))', []),
        (f"def _long(x):\n    return {' + '.join(['x'] * 20)}\n\nprint(_long(3))", []),
        ("class A:\n    def _own(self):\n        return self.own\n\n    def go(self):\n        self._own()", ["_own"]),
    ],
)
def test_a_hop_is_found(text, names):
    assert hops(list(ast.walk(ast.parse(text)))) == names
