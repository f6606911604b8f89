"""The house itself: locks, links of the documentation, tasks by name."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_of_a_page_lead_somewhere(page):
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text())
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert missing == []


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


def test_installer_passes_on_everything_of_a_lock_but_torch_and_its_libraries():
    sys.path.insert(0, str(ROOT / "requirements"))
    try:
        import install
    finally:
        sys.path.pop(0)
    lock = ROOT / "requirements/run.txt"
    every = [entry.split("==")[0] for entry in install.entries(lock)]
    rest = [name for name in every if not install.TORCH_FAMILY.match(name)]
    assert "torch" in every
    assert "cattrs" in rest
    assert {name.split("-")[0] for name in set(every) - set(rest)} == {"torch", "triton", "cuda", "nvidia"}
