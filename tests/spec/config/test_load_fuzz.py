"""Any text at all gives a line or a ConfigError, within a second: pushes come from strangers."""

import json
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gangline.errors import ConfigError
from gangline.spec.config.line import Line
from gangline.spec.config.load import effective, line_digest, load_line_text, load_text
from gangline.spec.config.site import Site
from gangline.spec.config.toml_text import MOST_BYTES

LEAST = '[project]\nname = "demo"\ntask = "model:Demo"\n[train]\nsteps = 1\nglobal_batch = 1\n'

names = st.sampled_from(
    ["project", "train", "data", "model", "optimizer", "gate", "quality", "evaluate", "mesh", "checkpoint", "steps",
     "ranks", "env", "store", "forge", "gpu", "x.y"]
)  # fmt: skip
scalars = st.one_of(
    st.integers(-(2**70), 2**70).map(str),
    st.floats().map(repr),
    st.sampled_from(["true", "1979-05-27", "07:32:00", "nan", "inf", "''", '"auto"', "0x" + "f" * 200]),
    st.text("abc./:*-{}[]\\ ", max_size=8).map(lambda text: f"'{text}'"),
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]")
        | st.dictionaries(names, inner, max_size=3).map(
            lambda table: "{" + ", ".join(f"{key} = {value}" for key, value in table.items()) + "}"
        )
    ),
    max_leaves=6,
)
lines = st.one_of(
    st.builds("[{}]".format, names),
    st.builds("[[{}.{}]]".format, names, names),
    st.builds("{} = {}".format, names, values),
    st.builds("{}.{} = {}".format, names, names, values),
)


def outcome(text: str) -> Line | Site | ConfigError:
    started = time.process_time()
    try:
        found = load_line_text(text, file="line.toml")
        line_digest(found)
        effective(found)
    except ConfigError as error:
        return error
    finally:
        assert time.process_time() - started < 10, "a bomb: the bound is a second of processor"
    return found


@given(text=st.text(max_size=300))
@example("\ufeff")
@example("\ud800")
@example("a = 1\x00")
def test_any_text_is_a_line_or_a_config_error(text):
    assert isinstance(outcome(text), (Line, ConfigError))


@given(text=st.lists(lines, max_size=8).map("\n".join))
def test_any_toml_is_a_line_or_a_config_error(text):
    assert isinstance(outcome(text), (Line, ConfigError))
    assert isinstance(outcome(LEAST + text), (Line, ConfigError))


@given(text=st.lists(lines, max_size=8).map("\n".join))
def test_any_toml_is_a_site_or_a_config_error(text):
    try:
        found = load_text(Site, text, file="site.toml")
    except ConfigError as error:
        found = error
    assert isinstance(found, Site) or str(found).startswith("site.toml:")


@given(name=st.text(min_size=1, max_size=20), value=st.text(max_size=20))
@example("\x1b[31m", "\x1b]0;owned\x07")
@example("\u202e", "\u2028")
def test_message_has_nothing_that_a_terminal_obeys(name, value):
    key, text = json.dumps(name), json.dumps(value)
    hostile = f"{LEAST}env = {{ {key} = {text} }}\n[{key}]\n[data]\ndigest = {text}\ntext = [{text}]\n"
    found = outcome(hostile)
    assert isinstance(found, ConfigError)
    assert all(line.isprintable() for line in str(found).split("\n"))


half = MOST_BYTES // 2
BOMBS = {
    "deep lists": "a = " + "[" * half + "]" * half,
    "lists that never end": "a = " + "[" * (MOST_BYTES - 10),
    "deep tables": "a = " + "{a=" * (half // 2) + "1" + "}" * (half // 2),
    "a deep header": "[" + "a." * (half - 10) + "a]",
    "a deep name": "a." * (half - 10) + "a = 1",
    "a deep quoted name": '"a".' * (half // 2 - 10) + "a = 1",
    "many unknown tables": "".join(f"[a{i}]\n" for i in range(7000)),
    "many unknown keys": "[train]\n" + "".join(f"s{i}=1\n" for i in range(7000)),
    "escapes that never end": '"""\\' * (half // 2),
    "quotes": '"' * MOST_BYTES,
    "dots": "." * MOST_BYTES,
    "words": "a" * MOST_BYTES,
    "words and spaces": "a ." * (MOST_BYTES // 3),
    "a long number": "a = " + "9" * (MOST_BYTES - 10),
    "a long hexadecimal number": "[model]\na = 0x" + "f" * (MOST_BYTES - 20),
    "too large": " " * (MOST_BYTES + 1),
    "stars": LEAST + f"[data]\ntext = ['repo:{'*a' * 20000}']",
    "patterns": LEAST + f"[data]\ntext = ['repo:{'**/' * 10000}']",
}


@pytest.mark.parametrize("text", BOMBS.values(), ids=BOMBS.keys())
def test_bomb_costs_no_more_than_its_size(text):
    started = time.process_time()
    outcome(text)
    assert time.process_time() - started < 2.0
