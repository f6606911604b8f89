"""Figures of docs/reference/optimizer-plans.md: balance and modelled times of plans for Qwen3."""

from collections.abc import Callable, Iterable, Sequence

from gangline.optim.plan.buckets import GradientBuffer, alpha_greedy, buckets
from gangline.optim.plan.build import build_plan
from gangline.optim.plan.costs import DeviceCurve, MuonSpec, RuleSpec, cost
from gangline.optim.plan.geometry import SyncRate
from gangline.optim.plan.groups import (
    HostExchangeRate,
    HostItem,
    MicroGroup,
    group_times,
    grown,
    plan_groups,
    run_pipeline,
)
from gangline.optim.plan.matrix import LogicalMatrix
from gangline.optim.plan.owners import WorkItem, balance_ratio, least_makespan, loads_of, owner_map
from gangline.optim.plan.simulate import simulate
from gangline.units import Elements
from tools.published_schemes import (
    contiguous,
    equal_cut,
    iteration_speed_up,
    layerwise_seconds,
    model_seconds,
    ping_pong,
    round_robin,
    synchronous_seconds,
)
from tools.qwen3 import QWEN3, Layout

RANKS = (8, 32, 64, 128, 256)
SIZES = ("1.7B", "8B", "32B")
LAYOUTS: tuple[Layout, ...] = ("fused", "split")
BUCKET = Elements(400e6)
_DEVICE, _EXCHANGE, _SYNC, _MUON = DeviceCurve(), HostExchangeRate(), SyncRate(), MuonSpec()


def flops(matrices: Sequence[LogicalMatrix], rule: RuleSpec = _MUON) -> list[float]:
    """Operations of a mean step of each matrix."""
    return [cost(rule, each.shape).value for each in matrices]


def sliced(
    matrices: Sequence[LogicalMatrix], ranks: int, alpha: float, limit: Elements | None
) -> tuple[list[int], float]:
    """Owners in model order by `alpha_greedy` on elements, and the elements sent with padding over all."""
    buffers = buckets(matrices, limit)
    found = alpha_greedy([each.sizes for each in buffers], ranks, alpha)
    largest = (max(loads_of(owners, each.sizes, ranks)) for each, owners in zip(buffers, found, strict=True))
    padded = ranks * sum(largest) / sum(sum(each.sizes) for each in buffers)
    return in_model_order(buffers, found), padded


def in_model_order(buffers: Iterable[GradientBuffer], owners: Iterable[Sequence[int]]) -> list[int]:
    """Owners of all matrices, given those of each bucket in its order."""
    placed = {
        place: owner
        for each, mine in zip(buffers, owners, strict=True)
        for place, owner in zip(each.places, mine, strict=True)
    }
    return [placed[at] for at in range(len(placed))]


def equal_cuts(matrices: Sequence[LogicalMatrix], ranks: int, limit: Elements | None = None) -> list[int]:
    """Owners in model order by `asc`."""
    buffers = buckets(matrices, limit)
    return in_model_order(buffers, [equal_cut(each, ranks) for each in buffers])


def broken_share(matrices: Sequence[LogicalMatrix], ranks: int, limit: Elements | None = None) -> float:
    """Share of elements in matrices that slices of equal size cut, in one buffer or in buckets."""
    broken = 0.0
    for buffer in buckets(matrices, limit):
        start, total = 0, sum(buffer.sizes)
        for size in buffer.sizes:  # the first cut above the start, in units of 1 / ranks
            cut = (start * ranks // total + 1) * total
            broken += size if cut < (start + size) * ranks else 0
            start += size
    return broken / sum(each.elements.value for each in matrices)


def best_map(matrices: Sequence[LogicalMatrix], ranks: int) -> list[int]:
    """Owners by the map of this project."""
    items = [WorkItem(key=each.key, cost=cost(_MUON, each.shape)) for each in matrices]
    return list(owner_map(items, ranks).owners)


SCHEMES: dict[str, Callable[[Sequence[LogicalMatrix], int], list[int]]] = {
    "round_robin": lambda matrices, ranks: round_robin(len(matrices), ranks),
    "ping_pong": lambda matrices, ranks: ping_pong([each.elements.value for each in matrices], ranks),
    "asc": equal_cuts,
    "alpha_greedy": lambda matrices, ranks: sliced(matrices, ranks, 1, BUCKET)[0],
    "contiguous": lambda matrices, ranks: contiguous(flops(matrices)[::-1], ranks)[::-1],
    "owner map": best_map,
}


def balance(layout: Layout, size: str) -> dict[str, list[float]]:
    """Table 1: largest compute load over the mean by scheme, for each number of ranks; first the bound."""
    matrices = QWEN3[size].matrices(layout)
    costs = flops(matrices)
    bound = [max(1.0, ranks * max(costs) / sum(costs)) for ranks in RANKS]
    return {"bound": bound} | {
        name: [balance_ratio(loads_of(scheme(matrices, ranks), costs, ranks)) for ranks in RANKS]
        for name, scheme in SCHEMES.items()
    }


def proved_optimal(layout: Layout, size: str) -> list[int]:
    """Numbers of ranks whose owner map the bound proves optimal."""
    matrices = QWEN3[size].matrices(layout)
    costs = flops(matrices)
    return [
        ranks
        for ranks in RANKS
        if max(loads_of(best_map(matrices, ranks), costs, ranks)) == least_makespan(costs, ranks)
    ]


ALPHAS = (0, 0.25, 0.5, 0.75, 1)


def alpha_table(limit: Elements | None) -> tuple[list[float], float]:
    """Table 2: compute ratio at each alpha, and padded elements at 0, of 8B fused on 32 ranks."""
    matrices = QWEN3["8B"].matrices("fused")
    costs = flops(matrices)
    ratios = [balance_ratio(loads_of(sliced(matrices, 32, alpha, limit)[0], costs, 32)) for alpha in ALPHAS]
    return ratios, sliced(matrices, 32, 0, limit)[1]


def host_items(size: str, layout: Layout, rule: RuleSpec = _MUON) -> list[HostItem]:
    """Matrices of a model in fp32 with their modelled seconds."""
    return [
        HostItem(key=each.key, seconds=_DEVICE.seconds(rule, each.shape), hosted=each.size(4))
        for each in QWEN3[size].matrices(layout)
    ]


def owned_items(size: str, layout: Layout, ranks: int, rule: RuleSpec = _MUON) -> list[list[HostItem]]:
    """Those of each owner."""
    items = host_items(size, layout, rule)
    owners = owner_map([WorkItem(key=each.key, cost=each.seconds) for each in items], ranks).owners
    return [[each for each, owner in zip(items, owners, strict=True) if owner == rank] for rank in range(ranks)]


def heaviest(size: str, ranks: int) -> list[HostItem]:
    """Items of the owner with most to do."""
    return max(owned_items(size, "split", ranks), key=lambda mine: sum(each.seconds.value for each in mine))


def sum_of_maxima(items: Sequence[HostItem], groups: Sequence[MicroGroup]) -> float:
    """Seconds of the busiest host of each group, added up, over those of a perfect balance."""
    hosts = len(groups[0])
    maxima = sum(max(sum(items[at].seconds.value for at in host) for host in group) for group in groups)
    return maxima * hosts / sum(item.seconds.value for item in items)


def group_row(size: str, ranks: int) -> tuple[int, float, float, list[tuple[int, float, float]]]:
    """Table 3, on 8 hosts: items, largest MB, ideal ms; of each ceiling groups, sum of maxima over ideal, ms."""
    items = heaviest(size, ranks)
    largest = max(each.hosted for each in items)
    ideal = sum(each.seconds.value for each in items) / 8
    cells = []
    for factor in (1, 2, 4, 8):
        groups = grown(items, 8, largest * factor)
        total = run_pipeline(group_times(items, groups, _EXCHANGE)).total_seconds
        cells.append((len(groups), sum_of_maxima(items, groups), 1000 * total))
    return len(items), largest.value / 1e6, 1000 * ideal, cells


def best_of_ladder(size: str, ranks: int, factor: float) -> float:
    """Milliseconds of the best candidate under a ceiling of `factor` times the largest item."""
    items = heaviest(size, ranks)
    c_max = max(each.hosted for each in items) * factor
    return 1000 * plan_groups(items, 8, c_max=c_max, rate=_EXCHANGE).times.total_seconds


def step_row(size: str) -> dict[str, float]:
    """Table S: milliseconds of a step by scheme, 8 hosts and 32 owners."""
    model = QWEN3[size]
    matrices = {each.fqn: each.shape for each in model.matrices("fused")}
    layerwise = layerwise_seconds(
        dict(model.parameters("fused")), matrices, _MUON, ranks=32, hosts=8, device=_DEVICE, exchange=_EXCHANGE,
        sync=_SYNC,
    )  # fmt: skip
    synchronous = synchronous_seconds(list(matrices.values()), _MUON, hosts=8, device=_DEVICE, exchange=_EXCHANGE)
    seconds = {
        "SC": synchronous.value,
        "layerwise compute": layerwise.compute_seconds,
        "layerwise step": layerwise.step_seconds,
        "LB-ASC": planned_seconds(size, "fused", _MUON),
        "ours": planned_seconds(size, "split", _MUON),
        "ours, symmetric": planned_seconds(size, "split", MuonSpec(kernel="symmetric")),
    }
    return {name: 1000 * each for name, each in seconds.items()}


def planned_seconds(size: str, layout: Layout, rule: RuleSpec) -> float:
    """Time of the step of a plan for 32 owners and 8 hosts."""
    return simulate(build_plan(QWEN3[size].matrices(layout), rule, ranks=32, hosts=8)).step_seconds


def iteration_rows(step: dict[str, float]) -> list[tuple[int, float, float, float]]:
    """Tokens per step, F in ms, and speed-ups of an iteration of 32B on 256 GPUs: LB-ASC and ours over layerwise."""
    rows = []
    for power in range(18, 23):
        model = 1000 * model_seconds(QWEN3["32B"].num_parameters, 2**power, ranks=256)
        ups = [
            iteration_speed_up(model_seconds=model, before_seconds=step["layerwise step"], after_seconds=step[after])
            for after in ("LB-ASC", "ours")
        ]
        rows.append((2**power, model, *ups))
    return rows
