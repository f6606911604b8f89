"""Published schemes give the ratios that were computed from their definitions, and keep their promises."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools import optimizer_tables as tables
from tools.published_schemes import contiguous, layerwise_2026_01, ping_pong
from tools.qwen3 import QWEN3

from gangline.errors import ConfigError
from gangline.optim.plan.buckets import alpha_greedy
from gangline.optim.plan.owners import balance_ratio, loads_of
from gangline.units import Elements

RATIOS = """
fused 1.7B | 1.00/1.00/1.06/2.12/4.24 | 1.86/2.12/2.12/2.12/4.24 | 1.02/1.47/1.47/2.12/4.24 | 1.06/1.14/1.63/2.12/4.24 | 1.07/1.51/1.63/2.94/4.24 | 1.06/1.14/1.22/2.12/4.24 | 1.00/1.02/1.06/2.12/4.24
fused 8B | 1.00/1.00/1.00/1.71/3.42 | 1.93/2.14/2.57/3.42/3.42 | 1.02/1.32/1.91/3.42/3.42 | 1.05/1.32/1.78/2.63/3.42 | 1.05/1.38/1.71/2.50/4.21 | 1.05/1.32/1.32/1.71/3.42 | 1.00/1.02/1.05/1.71/3.42
fused 32B | 1.00/1.00/1.00/1.02/2.04 | 2.04/2.04/2.04/2.04/2.04 | 1.00/1.00/1.00/1.22/2.04 | 1.00/1.00/1.00/1.55/2.04 | 1.15/1.23/1.22/1.26/2.04 | 1.00/1.00/1.00/1.47/2.04 | 1.00/1.00/1.00/1.02/2.04
split 1.7B | 1.00/1.00/1.00/1.13/2.27 | 1.10/1.14/1.94/2.27/2.27 | 1.04/1.40/1.62/2.27/2.27 | 1.00/1.14/1.43/1.82/3.24 | 1.00/1.16/1.13/1.46/2.27 | 1.00/1.14/1.15/1.17/2.27 | 1.00/1.01/1.13/1.13/2.27
split 8B | 1.00/1.00/1.00/1.00/1.82 | 1.08/1.12/1.56/1.82/1.82 | 1.03/1.12/1.12/1.30/1.82 | 1.00/1.12/1.37/1.82/2.64 | 1.03/1.14/1.50/2.09/2.61 | 1.00/1.12/1.32/1.32/1.82 | 1.00/1.01/1.11/1.30/1.82
split 32B | 1.00/1.00/1.00/1.00/1.06 | 1.00/1.00/1.00/1.26/1.46 | 1.00/1.00/1.00/1.26/1.46 | 1.00/1.00/1.00/1.06/1.06 | 1.07/1.21/1.21/1.21/1.21 | 1.00/1.00/1.00/1.06/1.06 | 1.00/1.00/1.00/1.06/1.06
"""  # noqa: E501


@pytest.mark.parametrize("line", RATIOS.strip().splitlines(), ids=lambda line: line.split(" |")[0])
def test_balance_of_every_scheme(line):
    name, *wanted = line.split(" | ")
    found = tables.balance(*name.split())
    assert ["/".join(f"{ratio:.2f}" for ratio in column) for column in found.values()] == wanted


@pytest.mark.parametrize(
    ("limit", "ratios", "padded"),
    [
        (40e6, "23.7/22.4/22.4/22.4/1.28", 29.2),
        (400e6, "3.56/2.57/2.24/2.47/1.38", 7.4),
        (None, "1.32/1.32/1.32/1.32/1.32", 1.4),
    ],
)
def test_alpha_below_one_needs_several_matrices_per_rank_and_bucket(limit, ratios, padded):
    found, sent = tables.alpha_table(limit and Elements(limit))
    assert "/".join(f"{each:.3g}" for each in found) == ratios
    assert round(sent, 1) == padded


@pytest.mark.parametrize(("size", "before"), [("8B", 3.56), ("32B", 15.86)])
def test_equal_cuts_of_buckets(size, before):
    matrices = QWEN3[size].matrices("fused")
    owners = tables.equal_cuts(matrices, 32, tables.BUCKET)
    assert round(balance_ratio(loads_of(owners, tables.flops(matrices), 32)), 2) == before


def test_ping_pong_turns_at_every_row():
    assert ping_pong([5, 1, 4, 2, 3, 6, 7], 3) == [1, 0, 2, 1, 2, 0, 0]


def test_layerwise_counts_parameters_that_the_rule_does_not_update():
    assert layerwise_2026_01([Elements(9), Elements(1), Elements(2)], 2) == [1, 0, 1]


buffers_of_sizes = st.lists(st.lists(st.integers(1, 50), min_size=1, max_size=8), min_size=1, max_size=4)


@given(sizes=buffers_of_sizes, ranks=st.integers(1, 6), alpha=st.sampled_from([0, 0.3, 1]))
def test_slices_are_whole_tensors_in_order(sizes, ranks, alpha):
    for mine, owners in zip(sizes, alpha_greedy(sizes, ranks, alpha), strict=True):
        assert len(owners) == len(mine)
        assert list(owners) == sorted(owners)
        assert set(owners) <= set(range(ranks))


def test_alpha_out_of_range_is_refused():
    with pytest.raises(ConfigError, match="alpha is from 0 to 1, found 2"):
        alpha_greedy([[1]], 1, 2)


@given(costs=st.lists(st.integers(1, 20), min_size=1, max_size=8), ranks=st.integers(1, 4))
def test_contiguous_is_the_best_cut(costs, ranks):
    def best(at, left):
        if left == 1 or at == len(costs):
            return sum(costs[at:])
        return min(max(sum(costs[at:cut]), best(cut, left - 1)) for cut in range(at, len(costs) + 1))

    owners = contiguous(costs, ranks)
    assert list(owners) == sorted(owners)
    assert max(loads_of(owners, costs, ranks)) == best(0, ranks)


@pytest.mark.parametrize(
    ("size", "limit", "percent"),
    [
        ("8B", None, [6, 30, 62, 83, 95]), ("32B", None, [0, 0, 0, 54, 81]),
        ("8B", tables.BUCKET, [80, 100, 100, 100, 100]),
    ],
)  # fmt: skip
def test_equal_slices_break_as_many_elements_as_the_design_says(size, limit, percent):
    fused = QWEN3[size].matrices("fused")
    assert [round(100 * tables.broken_share(fused, ranks, limit)) for ranks in tables.RANKS] == percent
