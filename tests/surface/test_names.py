"""What users, dashboards, scripts and stored records hold on to is still called what it was called."""

from tests.surface.names import kept, names


def test_no_name_that_users_hold_on_to_is_gone():
    assert sorted({*kept()} - {*names()}) == [], "these break files of users: see tests/surface/names.py"


def test_new_names_are_kept_from_now_on():
    assert sorted({*names()} - {*kept()}) == [], "python -m tests.surface.names adds them"


def test_every_kind_of_name_is_found():
    kinds = {each.partition(" ")[0] for each in kept()}
    assert {
        "command",
        "line",
        "site",
        "record",
        "metric",
        "exit",
        "http",
        "python",
        "environment",
        "kubernetes",
    } <= kinds
