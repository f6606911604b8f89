"""Keys put into the text of a line: everything else stays, and what cannot be kept is refused."""

import sys
import tomllib

import pytest
import tomlkit
from hypothesis import given
from hypothesis import strategies as st

from gangline.errors import NotInstalledError, UsageError
from gangline.spec.config.toml_text import with_values

TEXT = """\
# of this model
[project]
name = "a"    # its name

[optimizer.elementwise]
lr = 3e-3 # by hand
# the rest
[train]
steps = 10
schedule.kind = "cosine"
[[gate.quality]]
metric = "a"
"""


def test_a_value_changes_and_nothing_else():
    assert with_values(TEXT, {"optimizer.elementwise.lr": 0.0041}) == TEXT.replace("3e-3", "0.0041")


def test_keys_that_are_new_are_put_where_they_belong():
    edited = with_values(TEXT, {"train.global_batch": 32, "model.name": 'x "y"', "train.schedule.warmup_steps": 3})
    plain = tomllib.loads(edited)
    assert plain["train"] == {"steps": 10, "schedule": {"kind": "cosine", "warmup_steps": 3}, "global_batch": 32}
    assert plain["model"] == {"name": 'x "y"'}
    assert [line for line in TEXT.splitlines() if line not in edited.splitlines()] == []


def test_an_inline_table_stays_one():
    text = "optimizer = { elementwise = { lr = 1e-3 } } # all of it\ntrain.steps = 4\n"
    assert with_values(text, {"optimizer.elementwise.lr": 0.5}) == text.replace("1e-3", "0.5")


@given(
    key=st.sampled_from(["optimizer.elementwise.lr", "model.a", "train.env.X", "train.steps"]),
    value=st.one_of(
        st.booleans(), st.integers(-(2**62), 2**62), st.floats(allow_nan=False, allow_infinity=False),
        st.text(st.characters(codec="utf-8"), max_size=20),
    ),
)  # fmt: skip
def test_any_value_is_read_back(key, value):
    *path, name = key.split(".")
    table = tomllib.loads(with_values(TEXT, {key: value}))
    for part in path:
        table = table[part]
    assert table[name] == value
    assert type(table[name]) is type(value)


def test_a_text_that_would_be_another_one_is_refused_with_the_keys(monkeypatch):
    monkeypatch.setattr(tomlkit, "dumps", lambda _: TEXT.replace('"cosine"', '"linear"'))
    with pytest.raises(UsageError, match=r"write by hand: train\.steps = 5"):
        with_values(TEXT, {"train.steps": 5})


def test_a_place_that_holds_no_table_is_refused():
    with pytest.raises(UsageError):
        with_values(TEXT, {"project.name.x": 1})


def test_without_the_editor_its_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "tomlkit", None)
    with pytest.raises(NotInstalledError, match=r"gangline\[search\]"):
        with_values(TEXT, {"train.steps": 5})
