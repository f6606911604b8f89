"""Each rule of `[slurm]`, with what it refuses."""

import pytest

from gangline.spec.config.rules_site import slurm_rules
from gangline.spec.config.site_tables import SlurmTable
from gangline.spec.config.structure import bound_problems

GOOD = SlurmTable(
    shared="/shared/gangs", partition="gpu", account="lab_1", qos="normal", constraint="h100&ib", time_seconds=3600,
    options=("--reservation=maintenance", "--mail-type=END"), via=("ssh", "login1"), lives=5, margin_seconds=120,
)  # fmt: skip


def keys(table, *, is_target=True):
    found = [*bound_problems(table, "slurm"), *slurm_rules(table, is_target=is_target)]
    return [problem.key for problem in found]


def test_good_table_has_no_problem():
    assert keys(GOOD) == []
    assert keys(SlurmTable(), is_target=False) == []


def test_folder_is_needed_where_gangs_run_there():
    assert keys(SlurmTable()) == ["slurm.shared"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("shared", "gangs"),
        ("shared", "/a/../b"),
        ("shared", "/a\nb"),
        ("partition", "gpu --uid=0"),
        ("partition", "-p"),
        ("account", "a b"),
        ("qos", ""),
        ("constraint", "a;b"),
        ("lives", 0),
        ("lives", 101),
        ("margin_seconds", 0),
        ("margin_seconds", 65_536),
        ("time_seconds", 119),
    ],
)
def test_value_is_refused_by_its_key(key, value):
    from dataclasses import replace

    margin = {"margin_seconds": 60} if key == "time_seconds" else {}
    assert f"slurm.{key}" in keys(replace(GOOD, **margin | {key: value}))


@pytest.mark.parametrize("word", ["--array=1-9", "--wrap=x", "-J", "--comment=x", "--nodes=2", "", "a\nb", "word"])
def test_option_that_is_gangs_own_or_none_is_refused(word):
    assert keys(SlurmTable(shared="/s", options=("--x", word))) == ["slurm.options[1]"]


def test_word_before_commands_that_is_none_is_refused():
    assert keys(SlurmTable(shared="/s", via=("ssh", ""))) == ["slurm.via[1]"]
