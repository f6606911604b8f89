"""The picture of owners: bars of planned loads with the bound, words that say whether each update was computed once."""

from dataclasses import replace

from tests.report.records import passed

from gangline.report.gang_bars import MOST_ROWS, owner_picture, updates_words
from gangline.report.run.html import render_html
from gangline.spec.measurements import LateUpdates, MatrixUpdates, RankUpdateCount, Training

UPDATES = MatrixUpdates(
    rule="muon/standard", matrices=3, steps=10, wanted=30, computed=30, bound_seconds=0.003,
    ranks=(
        RankUpdateCount(rank=0, computed=10, loads={"layers.*.wo": 0.003}, seconds=0.05),
        RankUpdateCount(rank=1, computed=20, loads={"layers.*.fc <1>": 0.001, "layers.*.wo": 0.001}, seconds=None),
    ),
)  # fmt: skip


def record(updates):
    return replace(passed(), training=Training(matrix_updates=updates))


def test_words_say_that_each_update_was_computed_once_and_how_loads_lie_to_the_bound():
    assert updates_words(UPDATES) == (
        "muon/standard: 3 matrices in 10 steps, 30 updates, each computed once; most loaded rank 1.20 of the mean, "
        "bound 1.20"
    )


def test_words_say_that_all_copies_computed_each_update():
    found = updates_words(replace(UPDATES, wanted=60, computed=60, repeats=2))
    assert "60 updates, each computed by all 2 copies; most" in found


def test_words_say_where_an_update_was_computed_twice():
    assert "31 updates computed where 30 were wanted" in updates_words(replace(UPDATES, computed=31))


def test_words_say_that_updates_arrived_later_and_in_which_buckets():
    late = LateUpdates(buckets=4, largest_elements=196_608, are_blocks=True, outstanding_bytes=3.7e6)
    assert updates_words(replace(UPDATES, late=late)).endswith(
        "; they reached copies during the next forward pass in 4 buckets (one a block, as the plan chose), up to "
        "3.7 MB in memory until then"
    )
    given = updates_words(replace(UPDATES, late=replace(late, are_blocks=False)))
    assert "in 4 buckets (as the line gives them)" in given


def test_a_bar_has_a_part_for_each_kind_and_the_bound():
    picture = owner_picture(record(UPDATES))
    first, second = picture.rows
    assert [each.name for each in picture.kinds] == ["layers.*.fc <1>", "layers.*.wo"]
    assert (first.planned, first.measured, first.computed) == ("3 ms", "5 ms", "10")
    assert (second.planned, second.measured) == ("2 ms", "unknown")
    assert second.bar.count("<rect") == 2
    assert "<1>" not in second.bar
    assert "Matrix updates" in render_html(record(UPDATES))


def test_a_gang_of_thousands_shows_its_first_ranks_and_a_training_without_rule_nothing():
    many = tuple(RankUpdateCount(rank=rank, computed=1, loads={"w": 1.0}) for rank in range(256))
    assert len(owner_picture(record(replace(UPDATES, ranks=many))).rows) == MOST_ROWS
    assert owner_picture(record(None)) is None


def test_the_eighth_kind_is_one_of_the_others():
    loads = {f"kind {number}": float(number + 1) for number in range(9)}
    picture = owner_picture(record(replace(UPDATES, ranks=(RankUpdateCount(rank=0, computed=1, loads=loads),))))
    assert [each.name for each in picture.kinds] == [*(f"kind {number}" for number in range(2, 9)), "other"]
    assert picture.rows[0].bar.count("f-grey") == 2
