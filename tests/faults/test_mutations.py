"""Every patch that removes a protection still fits the code, and the tests that must notice are there."""

import re
from dataclasses import replace

import pytest
from tests.faults.mutate import ROOT, Mutation, Unharmed, applies, judge, mutations, verdict, with_python

ALL = mutations()
PATCH = """Row: T1
Removes: {removes}
Tests: test_it.py

--- a/it.py
+++ b/it.py
@@ -1 +1 @@
-{before}
+two = 3
"""


@pytest.mark.parametrize("mutation", ALL, ids=lambda each: each.name)
def test_patch_applies_and_its_tests_are_there(mutation):
    assert applies(mutation, ROOT) == ""
    assert re.fullmatch(r"[A-Z]+\d+( [A-Z]+\d+)*", mutation.row)
    for test in mutation.tests:
        path, _, name = test.partition("::")
        assert (ROOT / path).exists(), test
        name = name.partition("[")[0]
        assert f"def {name}(" in (ROOT / path).read_text() or not name, test


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A small tree with one protection and its test, and no more plugins than it takes."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p pytest_timeout\ntimeout_method = thread\n")
    (tmp_path / "it.py").write_text("two = 2\n")
    return with_python(tmp_path)


def mutation_of(tree, before="two = 2"):
    path = tree / "it.patch"
    path.write_text(PATCH.format(removes="sums", before=before))
    return Mutation.read(path)


@pytest.mark.parametrize(("test", "noticed"), [("assert it.two == 2", True), ("assert it.two", False)])
def test_runner_tells_what_is_noticed_and_leaves_the_tree_as_it_was(tree, test, noticed):
    (tree / "test_it.py").write_text(f"import sys\nsys.path.insert(0, '.')\nimport it\ndef test_it():\n    {test}\n")
    assert verdict(mutation_of(tree), tree)[0] is noticed
    assert (tree / "it.py").read_text() == "two = 2\n"


def test_patch_that_no_longer_applies_and_tests_that_cannot_run_are_not_noticed(tree):
    assert verdict(mutation_of(tree, before="two = 1"), tree)[0] is False
    (tree / "test_it.py").write_text("import no_such_module\n")
    noticed, why = verdict(mutation_of(tree), tree)
    assert (noticed, "pytest 2" in why) == (False, True)


def test_run_without_an_end_shows_nothing_unless_that_is_the_sign(tree):
    (tree / "test_it.py").write_text(
        "import sys, time\nsys.path.insert(0, '.')\nimport it\ndef test_it():\n    time.sleep(60 * (it.two - 2))\n"
    )
    mutation = mutation_of(tree)
    assert verdict(mutation, tree, longest_seconds=1) == (False, "no end in 1 s")
    assert verdict(replace(mutation, sign="hang"), tree, longest_seconds=1)[0] is True


def test_test_that_pytest_ends_by_its_own_clock_has_no_end_either(tree):
    (tree / "test_it.py").write_text("import pytest, time\n@pytest.mark.timeout(0.2)\ndef test_it(): time.sleep(60)\n")
    assert verdict(mutation_of(tree), tree) == (False, "a test had no end")


def test_patch_whose_tests_fail_anyway_is_not_noticed(tree):
    (tree / "test_it.py").write_text("def test_it(): assert False\n")
    noticed, why = judge(mutation_of(tree), tree, Unharmed(tree, ["test_it.py"]))
    assert (noticed, "does not pass as it is" in why) == (False, True)
