"""The tables of launchers and targets are complete, and other code asks for traits, not for names."""

import re
from pathlib import Path
from typing import get_args

import gangline
from gangline.spec.launchers import LAUNCHERS, TARGETS, Driving, RanksAt, Target

COMPARED = re.compile(rf'(==|!=|in) \(?"({"|".join(LAUNCHERS)})"')


def test_every_name_has_its_row():
    assert tuple(LAUNCHERS) == get_args(RanksAt)
    assert set(TARGETS) == set(get_args(Target))
    assert {ranks_at for ranks_at, _ in TARGETS.values()} == set(LAUNCHERS)
    assert {driving for _, driving in TARGETS.values()} == set(get_args(Driving))


def test_no_code_compares_the_name_of_a_launcher():
    source = Path(gangline.__file__).parent
    assert not [str(path) for path in source.rglob("*.py") if COMPARED.search(path.read_text())]
