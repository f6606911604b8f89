"""Whatever a book is told, what leaves it is declared, finite and bounded."""

import math
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.metrics.catalogue import CATALOGUE, PREFIX
from gangline.metrics.labels import CLOSED, MAX_SERIES_PER_RUN, values_of
from gangline.metrics.series_store import SeriesStore

names = st.sampled_from([name.removeprefix(PREFIX) for name in CATALOGUE]) | st.text(max_size=20)
labels = st.dictionaries(st.sampled_from([*CLOSED, "run", "rank", "metric", "user"]), st.text(max_size=12), max_size=4)
values = st.floats() | st.integers(min_value=-(2**70), max_value=2**70)


def lines(book):
    return sum(len(rows) for _, rows in book.values()) + sum(
        len(rows) * (len(series.buckets) + 3) for series, rows in book.histograms()
    )


def dropped(book):
    return {key[0]: count for series, rows in book.values() for key, count in rows.items() if "dropped" in series.name}


@pytest.mark.row("M5")
@given(st.lists(st.tuples(st.sampled_from(["set", "add", "observe"]), names, values, labels), max_size=60))
def test_whatever_is_reported_only_declared_and_finite_samples_leave(reported):
    book = SeriesStore()
    for how, name, value, reported_labels in reported:
        getattr(book, how)(name, value, **reported_labels)
    for series, rows in book.values():
        for key, value in rows.items():
            assert math.isfinite(value)
            assert len(key) == len(series.labels)
            pairs = zip(series.labels, key, strict=True)
            assert all(
                each in (values_of(series.name.removeprefix(PREFIX), label) or (each,)) for label, each in pairs if each
            )
    for series, histograms in book.histograms():
        assert all(math.isfinite(each.total) for each in histograms.values())
        assert all(len(each.counts) == len(series.buckets) + 1 for each in histograms.values())


def test_values_that_are_not_finite_are_dropped_and_counted():
    book = SeriesStore()
    book.set("train_loss", 2.5, run="r")
    for value in (math.nan, math.inf, -math.inf):
        book.set("train_loss", value, run="r")
    book.add("train_tokens_total", -1, run="r")
    assert dropped(book) == {"not_finite": 4.0}
    assert [list(rows.values()) for series, rows in book.values() if series.name.endswith("loss")] == [[2.5]]


def test_unknown_names_labels_and_values_are_dropped_and_counted():
    book = SeriesStore()
    book.set("no_such_series", 1.0)
    book.set("train_loss", 1.0, run="r", user="eve")
    book.set("run_stage", 1.0, run="r", stage="mine", state="done")
    assert dropped(book) == {"undeclared": 3.0}
    assert lines(book) == 1


@pytest.mark.row("M4")
def test_twenty_thousand_names_of_one_run_are_capped_and_counted_in_little_memory():
    book = SeriesStore()
    tracemalloc.start()
    for number in range(20_000):
        book.set("eval_value", 1.0, run="r", metric=f"metric-{number}")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert lines(book) == MAX_SERIES_PER_RUN + 1
    assert dropped(book) == {"cap": 20_000.0 - MAX_SERIES_PER_RUN}
    assert peak < 2_000_000


@pytest.mark.row("M4")
def test_a_run_that_reached_the_cap_takes_nothing_from_others():
    book = SeriesStore()
    for number in range(2000):
        book.set("eval_value", 1.0, run="greedy", metric=f"{number}")
    book.set("train_loss", 1.0, run="modest")
    assert any(key == ("modest",) for _, rows in book.values() for key in rows)


def test_a_counter_counts_and_a_gauge_replaces():
    book = SeriesStore()
    for amount in (1, 2, 3):
        book.add("train_tokens_total", amount, run="r")
        book.set("train_step", amount, run="r")
    found = {series.name: rows[("r",)] for series, rows in book.values()}
    assert found == {"gangline_train_tokens_total": 6.0, "gangline_train_step": 3.0}


def test_an_observation_falls_into_the_bucket_that_holds_it():
    book = SeriesStore()
    for seconds in (0.001, 0.01, 0.02, 1e9):
        book.observe("checkpoint_duration_seconds", seconds, run="r", part="whole")
    ((series, rows),) = book.histograms()
    assert series.buckets[:2] == (0.01, 0.05)
    assert rows["r", "whole"].counts == [2, 1, 0, 0, 0, 0, 0, 0, 1]


def test_a_forgotten_run_is_gone_and_its_room_is_free():
    book = SeriesStore(limit=3)
    for run in ("old", "new"):
        book.set("train_loss", 1.0, run=run)
        book.set("train_step", 1.0, run=run)
    book.forget("old")
    assert {key for _, rows in book.values() for key in rows} == {("new",)}
    for name in ("train_loss", "train_step", "train_steps"):
        book.set(name, 1.0, run="old")
    assert dropped(book) == {}


def test_labels_that_changed_leave_no_second_series_and_take_no_room():
    book = SeriesStore(limit=2)
    for plan in ("", "ddp-2", "fsdp-2"):
        book.set_only("run_info", 1.0, run="r", plan=plan)
        book.set_only("run_info", 1.0, run="other", plan=plan)
    book.set("train_loss", 1.0, run="r")
    (info, rows), _ = book.values()
    assert sorted(key[info.labels.index("plan")] for key in rows) == ["fsdp-2", "fsdp-2"]
    assert dropped(book) == {}


def test_sums_that_grow_past_every_number_stay_finite():
    book = SeriesStore()
    for _ in range(3):
        book.add("train_tokens_total", 1.7e308, run="r")
        book.observe("checkpoint_duration_seconds", 1.7e308, run="r", part="whole")
    ((_, histograms),) = book.histograms()
    assert histograms["r", "whole"].total == 1.7e308
    assert dropped(book) == {"not_finite": 4.0}


def test_text_of_users_is_one_printable_line_and_cut():
    book = SeriesStore()
    book.set("run_info", 1.0, run="r", branch="feature\n\x1b[31m\u202e" + "x" * 500)
    ((series, rows),) = book.values()
    (key,) = rows
    branch = key[series.labels.index("branch")]
    assert branch.isprintable()
    assert len(branch) <= 80
