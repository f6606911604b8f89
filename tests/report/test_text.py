"""What records hold is data on every surface."""

import re
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from gangline.report.text import clean, markdown, percent, short, step_time

EVIL = "\x1b[31mred\x1b[0m\x07 \u202eevil\u2066 \r\nnext\x00 \u200bline\ud800"


def test_terminal_sequences_and_invisible_characters_are_gone():
    assert clean(EVIL) == "red evil next line"


@given(text=st.text(st.characters(codec=None)), limit=st.integers(2, 50))
def test_clean_is_one_visible_line_within_the_limit(text, limit):
    shown = clean(text, limit)
    assert len(shown) <= limit
    assert not any(unicodedata.category(c) == "Cc" for c in shown)
    assert clean(shown, limit) == shown
    shown.encode()


@given(text=st.text())
def test_markdown_leaves_no_markup_mention_or_reference(text):
    escaped = markdown(text)
    assert not re.search(r"(?<!\\)(\\\\)*[`*_\[|~]", escaped)
    assert not re.search(r"[<>@]|(?<!&)#", escaped)


def test_a_million_characters_become_a_line():
    assert clean("a" * 1_000_000) == "a" * 399 + "…"


def test_quantities_read_as_people_write_them():
    assert [percent(0.894), percent(0.028), percent(0.016, signed=True), percent(-0.38, signed=True)] == [
        "89 %", "2.8 %", "+1.6 %", "-38 %",
    ]  # fmt: skip
    assert [step_time(0.1254), step_time(2.0), short("sha256:abcdef0123"), short(None)] == [
        "125 ms", "2.0 s", "abcdef01", "-",
    ]  # fmt: skip
