"""A program's own metrics file, good and bad."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.errors import ConfigError
from gangline.line.results.metrics_file import read_metrics_file, rows_added


def test_nested_tables_are_dotted_names():
    found = read_metrics_file("m.json", b'{"eval": {"accuracy": 0.97, "top": {"5": 1}}, "loss": 2}')
    assert found.metrics == {"eval.accuracy": 0.97, "eval.top.5": 1.0, "loss": 2.0}


def test_what_is_not_a_number_is_left_out_and_reported():
    found = read_metrics_file("m.json", b'{"a": 1, "name": "x", "ok": true, "list": [1], "none": null}')
    assert found.metrics == {"a": 1.0}
    assert set(found.left_out) == {"name", "ok", "list"}


def test_nan_and_infinity_are_kept_apart():
    found = read_metrics_file("m.json", b'{"a": NaN, "b": -Infinity, "c": 1e999, "d": 1}')
    assert found.not_finite == {"a": "nan", "b": "-inf", "c": "inf"}
    assert found.metrics == {"d": 1.0}


def test_rows_with_a_step_make_the_curve_and_the_last_values_are_the_metrics():
    found = read_metrics_file("m.csv", b"step,loss,eval_loss\n1,4.5,\n2,4.0,3.5\n3.0,nan,\n")
    assert found.losses == {1: 4.5, 2: 4.0}
    assert found.metrics == {"eval_loss": 3.5}
    assert found.not_finite == {"loss": "nan"}
    assert found.broken == [3]
    again = read_metrics_file("m.csv", b"step,loss\n1,4.5\n2,nan\n3,inf\n2,4.0\n4,nan\n")
    assert (again.losses, again.broken) == ({1: 4.5, 2: 4.0}, [4])
    assert read_metrics_file("m.jsonl", b'{"step": 1, "loss": 4.5}\n\n{"step": 2, "loss": 4, "acc": 0.5}').losses == {
        1: 4.5, 2: 4.0
    }  # fmt: skip


def test_rows_of_a_program_that_began_again_take_the_place_of_those_from_there_on():
    found = read_metrics_file("m.csv", b"step,loss\n1,4\n2,3\n3,2\n4,1\n2,9\n3,8\n")
    assert found.losses == {1: 4.0, 2: 9.0, 3: 8.0}


ROWS = b"step,loss\n1,2\n"


@pytest.mark.parametrize(
    ("name", "held", "now", "counts"),
    [
        ("m.csv", ROWS, ROWS + b"2,1\n", b"step,loss\n2,1\n"),
        ("m.csv", ROWS[:-1], ROWS + b"2,1\n", b"step,loss\n2,1\n"),
        ("m.csv", b"a\r\n1", b"a\r\n1\r\n2\r\n", b"a\n2\r\n"),
        ("m.csv", ROWS[:-1], ROWS[:-1] + b"5\n", ROWS[:-1] + b"5\n"),  # its last row became another
        ("m.csv", ROWS, b"step,loss\n1,3\n", b"step,loss\n1,3\n"),
        ("m.csv", ROWS, ROWS, ROWS),
        ("m.csv", b"", ROWS, ROWS),
        ("m.jsonl", b'{"a": 1}\n', b'{"a": 1}\n{"a": 2}\n', b'{"a": 2}\n'),
        ("m.json", b'{"a": 1}', b'{"a": 1}\n', b'{"a": 1}\n'),
    ],
)
def test_of_a_file_that_grew_the_rows_that_came_count(name, held, now, counts):
    assert rows_added(name, now, held) == counts


BAD = {
    "m.json": [
        (b"not json", "wanted JSON"), (b"", "wanted JSON"), (b"[1]", "wanted a table"), (b"{}", "at least one number"),
        (b'{"a": 1, "a": 2}', "found 'a' 2 times"), (b'{"a.b": 1, "a": {"b": 2}}', "as a table and as a dotted name"),
        (b"\xff\xfe", "decode"), (b'{"a":' * 100_000, "nested too deeply|wanted JSON"),
        (b"{" + b",".join(b'"n%d": 1' % n for n in range(300)) + b"}", "at most 256 metrics"),
        (b'{"a": "x"}', "at least one number"), (b'{"a": 1' + b"0" * 5000 + b"}", "integer"),
    ],
    "m.jsonl": [(b'{"a": 1}\n{"a', "wanted JSON"), (b"1\n", "wanted a table")],
    "m.csv": [
        (b"a,a\n1,2\n", "each column once"), (b"1,2\n3,4\n", "header of names"), (b"", "at least one number"),
        (b"a,b\n1\n", "line 2: wanted 2 values"), (b"a,b\n", "at least one number"),
        (b"step,loss\n" + b"1,2\n" * 10**6, "1,000,001"),
        (b'a\n"1', "unexpected end"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(("name", "data", "said"), [(name, *each) for name, bad in BAD.items() for each in bad])
def test_a_file_that_is_not_what_its_ending_says_is_named(name, data, said):
    with pytest.raises(ConfigError, match=rf"(?s)project.metrics: {name}: .*(?:{said})") as caught:
        read_metrics_file(name, data)
    assert (caught.value.exit_code, len(str(caught.value)) < 400) == (10, True)


@given(data=st.binary(max_size=200), name=st.sampled_from(["m.json", "m.jsonl", "m.csv"]))
def test_whatever_the_bytes_are_the_numbers_are_finite_or_the_file_is_refused(name, data):
    try:
        found = read_metrics_file(name, data)
    except ConfigError:
        return
    assert all(map(math.isfinite, [*found.metrics.values(), *found.losses.values()]))
