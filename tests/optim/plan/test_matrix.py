"""Fragments of fused parameters: every stored row once, in the order that the layout has."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.errors import ConfigError
from gangline.optim.plan.matrix import FragmentSplit, LogicalMatrix, fragments


def rows(found):
    return {each.fragment: [row for start, stop in each.rows for row in range(start, stop)] for each in found}


def test_gate_and_up_are_halves_or_alternate():
    assert rows(fragments("fc1", (6, 4), FragmentSplit(kind="gate_up"))) == {"gate": [0, 1, 2], "up": [3, 4, 5]}
    alternating = fragments("fc1", (6, 4), FragmentSplit(kind="gate_up_interleaved"))
    assert rows(alternating) == {"gate": [0, 2, 4], "up": [1, 3, 5]}
    assert [each.is_contiguous for each in alternating] == [False, False]


def test_queries_keys_and_values_lie_by_kind_or_by_group():
    heads = {"heads": 4, "kv_heads": 2, "head_dim": 1}
    assert rows(fragments("qkv", (8, 3), FragmentSplit(kind="qkv", **heads))) == {
        "q": [0, 1, 2, 3], "k": [4, 5], "v": [6, 7],
    }  # fmt: skip
    assert rows(fragments("qkv", (8, 3), FragmentSplit(kind="qkv_by_group", **heads))) == {
        "q": [0, 1, 4, 5], "k": [2, 6], "v": [3, 7],
    }  # fmt: skip


def test_a_stack_has_a_matrix_for_each_expert():
    found = fragments("experts", (3, 2, 5), FragmentSplit(kind="stack"))
    assert rows(found) == {"expert.0": [0, 1], "expert.1": [2, 3], "expert.2": [4, 5]}
    assert {each.shape for each in found} == {(2, 5)}


@given(
    kind=st.sampled_from(["gate_up", "gate_up_interleaved", "qkv", "qkv_by_group"]),
    queries=st.integers(1, 4), kv_heads=st.integers(1, 4), width=st.integers(1, 5),
)  # fmt: skip
def test_fragments_have_every_row_once(kind, queries, kv_heads, width):
    stored = 2 * width * kv_heads if kind.startswith("gate") else (queries + 2) * kv_heads * width
    split = FragmentSplit(kind=kind, heads=queries * kv_heads, kv_heads=kv_heads, head_dim=width)
    found = fragments("p", (stored, 7), split)
    assert sorted(row for mine in rows(found).values() for row in mine) == list(range(stored))
    assert sum(each.elements.value for each in found) == 7 * stored


@pytest.mark.parametrize(
    ("shape", "split"),
    [
        ((4, 4, 4), FragmentSplit()),
        ((4,), FragmentSplit()),
        ((4, 4), FragmentSplit(kind="stack")),
        ((5, 4), FragmentSplit(kind="gate_up")),
        ((8, 4), FragmentSplit(kind="qkv", heads=4, kv_heads=3, head_dim=1)),
        ((9, 4), FragmentSplit(kind="qkv", heads=4, kv_heads=2, head_dim=1)),
    ],
)
def test_a_shape_that_does_not_fit_its_rule_is_refused_by_name(shape, split):
    with pytest.raises(ConfigError, match=r"layers\.0\.odd"):
        fragments("layers.0.odd", shape, split)


def test_rows_are_as_many_as_the_shape_says():
    with pytest.raises(ConfigError, match="wanted 3 rows"):
        LogicalMatrix(fqn="p", fragment="q", shape=(3, 4), rows=((0, 2),))
