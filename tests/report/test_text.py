"""What records hold is data on every surface."""

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.report.text import (
    change_words,
    clean,
    code,
    markdown,
    percent,
    place,
    quantity,
    short,
    visible,
)
from gangline.units import format_step

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


def test_visible_keeps_indentation_and_drops_what_steers():
    assert visible("\t    raise \x1b[2JValueError(1)\r\x07  ") == "            raise ValueError(1)"
    assert len(visible("x" * 10_000)) == 4000


def test_quantities_are_said_in_their_unit():
    said = [quantity(539e6, "B"), quantity(0.314, "s"), quantity(6525, "1/s"), quantity(2.375, "nats"), quantity(0.5)]
    assert said == ["539 MB", "314 ms", "6.5 k/s", "2.375 nats", "0.5"]
    assert [place("0"), place("gpu-a\x1b[1m")] == ["node 0", "gpu-a"]


@given(text=st.text())
def test_markdown_leaves_no_markup_mention_or_reference(text):
    escaped = markdown(text)
    assert not re.search(r"(?<!\\)(\\\\)*[`*_\[|~]", escaped)
    assert not re.search(r"[<>]|@\w|(?<![\\&])#", escaped)


def test_markdown_parts_signs_from_names_and_numbers_once():
    assert markdown("@all #1 50% & a@b.c !2 x_y <b> #") == (
        "@&#8203;all \\#&#8203;1 50% &amp; a@&#8203;b.c !&#8203;2 x\\_y &lt;b&gt; \\#"
    )


def test_markdown_gives_no_order_where_it_begins_a_line():
    assert markdown("/merge a/b") == "\\/merge a/b"


def test_code_cannot_be_ended_by_what_is_in_it():
    assert code("a`b`\n@c") == "`a'b' @c`"
    assert code("") == "`-`"


def test_a_million_characters_become_a_line():
    assert clean("a" * 1_000_000) == "a" * 399 + "…"


def test_quantities_read_as_people_write_them():
    assert [percent(0.894), percent(0.028), percent(0.016, signed=True), percent(-0.38, signed=True)] == [
        "89 %", "2.8 %", "+1.6 %", "-38 %",
    ]  # fmt: skip
    assert [format_step(0.1254), format_step(2.0), short("sha256:abcdef0123"), short(None)] == [
        "125 ms", "2.0 s", "abcdef01", "-",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (None, "-"), (0.0, "+0.0 %"), (0.016, "+1.6 %"), (-0.00003, "-0.003 %"), (-1e-9, "-1e-07 %"), (0.5, "+50 %"),
        (4.0, "+400 %"), (99999.0, "100,000 times"), (-5000.0, "-4,999 times"),
        (-0.99995, "-99.995 %"), (-1.0, "-100 %"), (1e300, "1e+300 times"),
    ],
)  # fmt: skip
def test_a_change_is_seen_however_small_and_a_factor_where_a_percentage_only_hides(change, words):
    assert change_words(change) == words
