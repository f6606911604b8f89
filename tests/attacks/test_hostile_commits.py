"""C8: a commit of a stranger costs the service nothing: no memory, no late answer, no try that is lost."""

import random
import time
from dataclasses import dataclass

import pytest
from tests.attacks.building import building
from tests.attacks.hostile_commits import bomb, commit, deep_task, large_line, large_task, put, tree, wide
from tests.line.repositories import LINE

from gangline.git.objects import MOST_ENTRIES
from gangline.line.request.run_request import MOST_MODULE_BYTES

pytestmark = [pytest.mark.row("C8"), pytest.mark.long]
MEMORY_BYTES = 64 << 20
LATE_SECONDS = 3.0
"""Of an answer of /healthz, on a machine whose processors others use, too."""


@dataclass(frozen=True)
class Attack:
    refused: str
    """Part of what is said of the order."""
    files: object = None
    more: object = None
    """Makes further entries in a repository."""


def line_of(files=None):
    return {"line.toml": LINE.encode()} | (files or {})


def long_name(repo, size):
    return [("100644", "n" * size, put(repo, "blob", b""))]


def nested(repo, levels):
    """A folder in a folder in a folder ..."""
    name = tree(repo, [("100644", "file", put(repo, "blob", b""))])
    for _ in range(levels):
        name = tree(repo, [("40000", "d", name)])
    return [("40000", "deep", name)]


ATTACKS = {
    "a large module": Attack("model.py: wanted at most 500 kB, found 1.6 MB", lambda: large_task(1_600_000)),
    "a module of the most bytes": Attack("wanted Task", lambda: renamed(large_task(MOST_MODULE_BYTES - 64))),
    "a deep module": Attack("model.py is not valid Python", lambda: deep_task(100_000)),
    "a module of signs": Attack("model.py is not valid Python", lambda: task_of(b"x = " + b"-" * 400_000 + b"1")),
    "a large line": Attack("line.toml: wanted at most 66 kB, found 21 MB", lambda: large_line(20 << 20)),
    "a deep line": Attack("at most 16 levels", lambda: {"line.toml": b"a = " + b"[" * 30_000 + b"]" * 30_000}),
    "a line of names": Attack("line.toml", lambda: {"line.toml": b"".join(b"a%d.b.c.d=1\n" % n for n in range(4500))}),
    "many files": Attack(f"at most {MOST_ENTRIES:,} files", line_of, lambda repo: wide(repo, MOST_ENTRIES + 1)),
    "folders of folders": Attack(f"at most {MOST_ENTRIES:,} files", line_of, lambda repo: bomb(repo, 10)),
    "a long name": Attack("wanted paths of at most 4.0 kB", line_of, lambda repo: long_name(repo, 20 << 20)),
    "a deep folder": Attack("wanted paths of at most 4.0 kB", line_of, lambda repo: nested(repo, 2_500)),
}
SLOWLY_READ = ("a module of the most bytes",)
LARGE = {
    "a line of 300 MiB": Attack("found 315 MB", lambda: large_line(300 << 20)),
    "a million files": Attack(f"at most {MOST_ENTRIES:,} files", line_of, lambda repo: wide(repo, 1_000_000)),
    "a name of 300 MiB": Attack("wanted paths of at most 4.0 kB", line_of, lambda repo: long_name(repo, 300 << 20)),
}


def renamed(files):
    return files | {"model.py": files["model.py"].replace(b"class Task", b"class Tusk")}


def task_of(text):
    return {**deep_task(1), "model.py": text}


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with building(tmp_path_factory.mktemp("building")) as found:
        commit(found.repo, {"README": b"no line"}, branch="empty")
        assert found.wait(found.order("empty"))["note"] == "no line.toml there"
        yield found


def attack(service, how, branch, *, late_seconds=LATE_SECONDS):
    """Order the commit; how long it took, what memory and /healthz took meanwhile."""
    commit(service.repo, how.files(), branch=branch, more=how.more(service.repo) if how.more else ())
    service.forget_peak()
    before, began = service.memory_bytes(), time.monotonic()
    with service.watched():
        reported = service.wait(service.order(branch), states={"done", "dropped", "quarantined", "parked"})
    took, peak = time.monotonic() - began, service.peak_bytes()
    figures = f"rss {before >> 20} -> {peak >> 20} MiB, healthz {max(service.waits):.3f} s, order {took:.1f} s"
    print(f"{branch}: {figures}, {reported['state']}: {reported['note'][:120]}")
    assert (reported["state"], reported["run"]) == ("done", None), reported
    assert how.refused in reported["note"]
    assert peak - before < MEMORY_BYTES, figures
    assert max(service.waits) < late_seconds, figures


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] if name in SLOWLY_READ else []) for name in ATTACKS]
)
def test_a_hostile_commit_is_refused_at_no_cost(service, name):
    attack(service, ATTACKS[name], name.replace(" ", "-"))


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_a_large_hostile_commit_is_refused_at_no_cost(service, name):
    attack(service, LARGE[name], name.replace(" ", "-"))


def test_what_does_not_fit_into_the_clone_is_not_fetched_and_hinders_no_one(tmp_path):
    noise = random.Random(0).randbytes(24 << 20)
    with building(tmp_path, site="clone_bytes = 16e6\n") as service:
        commit(service.repo, line_of({"noise": noise}), branch="large")
        large = service.wait(service.order("large"))
        assert "serve.clone_bytes" in large["note"]
        commit(service.repo, {"README": b"no line"}, branch="empty")
        assert service.wait(service.order("empty"))["note"] == "no line.toml there"
        files = [each for each in (tmp_path / "home" / "clones").rglob("*") if each.is_file()]
        assert sum(each.stat().st_size for each in files) < 20e6
