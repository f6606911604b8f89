"""Patches that remove protections fit the code, the tests that must notice are there, and the tool tells who did."""

import json
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from tests.faults.mutation import ROOT, Mutation, mutations, stale
from tests.faults.trial import run_tests, verdict, with_python

from gangline import procfs

PATCH = """Row: T1
Removes: {removes}
Tests: {test}

--- a/it.py
+++ b/it.py
@@ -1 +1 @@
-{before}
+two = 3
"""


def test_every_patch_applies():
    assert stale(mutations(), ROOT) == {}


def test_a_patch_that_does_not_apply_is_named_among_others_of_its_file(tree):
    fit = [mutation_of(tree, name=name) for name in ("one", "two")]
    assert stale(fit, tree) == {}
    assert [*stale([*fit, mutation_of(tree, before="two = 1", name="old")], tree)] == ["old"]


def test_rows_of_patches_have_a_form_and_their_tests_are_there():
    read = cache(Path.read_text)
    for mutation in mutations():
        assert re.fullmatch(r"[A-Z]+\d+( [A-Z]+\d+)*", mutation.row), mutation.name
        for test in mutation.tests:
            path, _, name = test.partition("::")
            assert (ROOT / path).exists(), (mutation.name, test)
            name = name.partition("[")[0]
            assert not name or f"def {name}(" in read(ROOT / path), (mutation.name, test)


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A small tree with one protection and its test, and no more plugins than it takes."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    folder = tmp_path / "tree"
    folder.mkdir()
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -p pytest_timeout\ntimeout_method = thread\n")
    (folder / "it.py").write_text("two = 2\n")
    return folder


def mutation_of(folder, before="two = 2", name="it", test="test_it.py"):
    path = folder / f"{name}.patch"
    path.write_text(PATCH.format(removes="sums", before=before, test=test))
    return Mutation.read(path)


def write_test(tree, text, name="test_it.py"):
    (tree / name).write_text(f"import sys, time\nsys.path.insert(0, '.')\nimport it\ndef test_it():\n    {text}\n")


@pytest.mark.parametrize(("test", "noticed"), [("assert it.two == 2", True), ("assert it.two", False)])
def test_runner_reports_what_is_noticed_and_leaves_the_tree_as_it_was(tree, test, noticed):
    write_test(with_python(tree), test)
    assert verdict(mutation_of(tree), tree)[0] is noticed
    assert (tree / "it.py").read_text() == "two = 2\n"


def test_bytecode_of_one_trial_is_none_of_the_next(tree):
    """The patched file has the size of the one that was, and is written within the same second."""
    write_test(with_python(tree), "assert it.two == 2")
    for _ in range(2):
        assert run_tests(tree, ["test_it.py"]).code == 0
        assert verdict(mutation_of(tree), tree)[0] is True


def test_patch_that_no_longer_applies_and_tests_that_cannot_run_are_not_noticed(tree):
    assert verdict(mutation_of(tree, before="two = 1"), tree)[0] is False
    (with_python(tree) / "test_it.py").write_text("import no_such_module\n")
    noticed, why = verdict(mutation_of(tree), tree)
    assert (noticed, "pytest 2" in why) == (False, True)


def test_run_without_an_end_shows_nothing_unless_that_is_the_sign(tree):
    write_test(with_python(tree), "time.sleep(60 * (it.two - 2))")
    mutation = mutation_of(tree)
    assert verdict(mutation, tree, longest_seconds=1) == (False, "no end in 1 s")
    assert verdict(replace(mutation, sign="hang"), tree, longest_seconds=1)[0] is True


def test_test_that_pytest_ends_by_its_own_clock_has_no_end_either(tree):
    test = "import pytest, time\n@pytest.mark.timeout(0.2)\ndef test_it(): time.sleep(60)\n"
    (with_python(tree) / "test_it.py").write_text(test)
    assert verdict(mutation_of(tree), tree) == (False, "a test had no end")


DRIVER = """
import sys
from pathlib import Path

from tests.faults import mutate, mutation, trial

root = Path(sys.argv[1])
trial.ROOT, mutation.FOLDER, mutate.KEPT = root, root / "patches", root / "build"
sys.exit(mutate.main(["--jobs", "2", "--json", str(root.parent / "found.json"), *sys.argv[2:]]))
"""
LEFT_BEHIND = "import subprocess; subprocess.Popen(['sleep', '600'], start_new_session=True); assert it.two == 2"


@pytest.fixture
def checkout(tree, tmp_path, monkeypatch):
    """Function that starts the tool over that tree, which git knows; `WHOSE` marks all that it starts."""
    monkeypatch.setenv("WHOSE", str(tmp_path))
    (tree / "patches").mkdir()
    subprocess.run(["git", "init", "--quiet"], cwd=tree, check=True)
    (tree / ".gitignore").write_text("/build/\n")

    def start(*words):
        return subprocess.Popen(
            [sys.executable, "-c", DRIVER, str(tree), *words], cwd=ROOT, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    return start


def test_all_patches_are_tried_once_and_a_second_run_tries_what_was_missed(tree, tmp_path, checkout):
    for name, test in [("test_it.py", LEFT_BEHIND), ("test_weak.py", "assert it.two"), ("test_bad.py", "assert False")]:
        write_test(tree, test, name)
    for name, test in [("seen", "test_it.py"), ("unseen", "test_weak.py"), ("anyway", "test_bad.py")]:
        mutation_of(tree / "patches", name=name, test=test)
    mutation_of(tree / "patches", name="old", before="two = 1", test="test_it.py")

    def campaign(*words):
        process = checkout(*words)
        out, err = process.communicate()
        found = json.loads((tmp_path / "found.json").read_text())
        return process.returncode, out, err, {each["patch"]: (each["noticed"], each["by"]) for each in found["patches"]}

    code, out, err, found = campaign()
    assert code == 1, out + err
    assert out.splitlines()[-1].startswith("1 of 4 protections are noticed when they go")
    assert found["seen"][0] is True
    assert found["unseen"] == (False, "NOT NOTICED by any test")
    assert (found["anyway"][0], found["old"][0]) == (False, False)
    assert "test_bad.py does not pass as it is" in found["anyway"][1]
    assert "does not apply" in found["old"][1]
    assert out.count("passes as it is") == 2, "once a test, not once a patch"
    assert not list(procfs.with_variable("WHOSE", str(tmp_path))), "what a test starts ends with its trial"

    _, again, _, same = campaign()
    assert {name: noticed for name, (noticed, _) in same.items()} == {
        name: noticed for name, (noticed, _) in found.items()
    }
    tried = [line for line in again.splitlines() if line.startswith("patches")]
    assert (len(tried), any("seen  " in line and "unseen" not in line for line in tried)) == (3, False)
    assert campaign("seen")[0] == 0


def test_nothing_is_left_of_a_run_that_is_ended(tree, tmp_path, checkout):
    began = tmp_path / "began"
    write_test(tree, f"open({str(began)!r}, 'w').close(); time.sleep(600)")
    mutation_of(tree / "patches")
    running = checkout()
    patience = time.monotonic() + 120
    while not began.exists():
        assert time.monotonic() < patience, "no trial began"
        time.sleep(0.05)
    running.send_signal(signal.SIGTERM)
    assert running.communicate(timeout=120)[1] == ""
    assert running.returncode == 143
    assert not list(procfs.with_variable("WHOSE", str(tmp_path)))


def test_name_of_no_patch_and_no_row_is_refused(checkout):
    refused = checkout("no-such")
    assert "no patch and no row" in refused.communicate()[1]
    assert refused.returncode == 2
