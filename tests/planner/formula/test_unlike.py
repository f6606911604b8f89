"""Gangs of two kinds of GPU by formula, against every deal of passes to every layout, each weighed as of one kind."""

from dataclasses import replace
from itertools import product

import pytest
from tests.planner.formula.reference import A100, EIGHT, LINKS, SPACE, USABLE

from gangline.planner.formula.evaluate import LayoutCandidates
from gangline.planner.formula.plan import Question
from gangline.planner.formula.step_time import Hardware
from gangline.planner.formula.unlike import Side, evaluate_unlike, unlike_bound_seconds
from gangline.planner.layouts.enumerate import Divisions, layouts

H100 = Hardware(flops_per_second=400e12, memory_bytes_per_second=3.0e12, links=replace(LINKS, inside=300e9))


def sides_of(*, servers=(1, 1), batch=48, usable=(USABLE, USABLE), overlap=0.0, latency=0.0, **space):
    ranks = [8 * each for each in servers]
    small = {"tp": (1, 2), "pp": (1,), "micro_batches": (1, 2), "recompute": ("none", "full"), "loss_chunks": (1, 8)}
    asked = replace(SPACE, world_size=sum(ranks), global_batch=batch, **small | space)
    return tuple(
        Side(
            question=Question(
                model=EIGHT,
                space=asked,
                usable_bytes=room,
                hardware=replace(
                    each, overlap=overlap, links=replace(each.links, inside_latency=latency, across_latency=latency)
                ),
            ),
            ranks=own,
        )
        for each, own, room in zip((H100, A100), ranks, usable, strict=True)
    )


def of_one_kind(side, layout, way, passes):
    """Step and memory as the planner has them where all replicas take so many passes on this kind."""
    size, recompute, chunks, sync = way
    space = replace(
        side.question.space, global_batch=passes * size * layout.mesh.data_parallel, micro_batches=(size,),
        recompute=(recompute,), loss_chunks=(chunks,), syncs=(sync,),
    )  # fmt: skip
    return LayoutCandidates(replace(side.question, space=space), layout, {}).best()


def every_candidate(sides):
    """Seconds of every layout, way to run it and deal of passes that fits: slow and plain."""
    space = sides[0].question.space
    ranks = space.world_size
    found = layouts(replace(space, global_batch=ranks), Divisions.of(EIGHT))[0]
    for layout in found:
        replica, left = divmod(ranks, layout.mesh.dp_replicate)
        if layout.mesh.dp_replicate == 1 or left or any(each.ranks % replica for each in sides):
            continue
        counts = [each.ranks // replica for each in sides]
        syncs = space.syncs if layout.wrapping.shards else ("last",)
        for way in product(space.micro_batches, space.recompute, space.loss_chunks, syncs):
            passes, left = divmod(space.global_batch, way[0] * layout.mesh.dp_shard)
            if left:
                continue
            for first in range(counts[0], passes - counts[1] + 1):
                most = [-(-own // count) for own, count in zip((first, passes - first), counts, strict=True)]
                plans = [of_one_kind(side, layout, way, own) for side, own in zip(sides, most, strict=True)]
                if all(each.fits for each in plans):
                    yield max(each.step_seconds for each in plans)


@pytest.mark.parametrize(
    "case",
    [
        {},
        {"overlap": 0.6},
        {"latency": 1e-3, "tp": (4,)},
        {"servers": (2, 1)},
        {"servers": (1, 2), "usable": (USABLE, USABLE / 2)},
    ],
)
def test_no_layout_and_no_deal_of_its_passes_is_faster(case):
    sides = sides_of(**case)
    found = evaluate_unlike(sides).plans[0]
    assert all(each.fits for each in found.kinds)
    assert found.step_seconds == pytest.approx(min(every_candidate(sides)), rel=1e-9)


def test_shares_are_those_of_a_step_and_follow_the_speed():
    sides = sides_of(batch=256)
    found = evaluate_unlike(sides).plans[0]
    assert sum(found.shares) == 256
    assert len(found.shares) == found.layout.replicas
    assert 2 < max(found.shares) / min(found.shares) < 400 / 140 * 1.5
    assert min(found.shares) >= found.layout.mesh.dp_shard
    assert found.step_seconds > unlike_bound_seconds(sides)


def test_equal_kinds_take_equal_shares():
    first, second = sides_of(batch=256)
    same = replace(second, question=first.question)
    assert len(set(evaluate_unlike((first, same)).plans[0].shares)) == 1


def test_kind_with_less_memory_bounds_what_both_run():
    roomy, tight = (sides_of(batch=256, usable=(USABLE, each)) for each in (USABLE, USABLE / 3))
    plans = [evaluate_unlike(each).plans[0] for each in (roomy, tight)]
    assert plans[1].kinds[1].memory.total <= USABLE / 3 < plans[0].kinds[1].memory.total
    assert plans[1].step_seconds >= plans[0].step_seconds


def test_where_nothing_fits_the_nearest_miss_is_reported():
    found = evaluate_unlike(sides_of(usable=(USABLE, 1e9)))
    assert [all(each.fits for each in gang.kinds) for gang in found.plans] == [False]


def test_layouts_within_the_band_are_all_there_and_the_others_are_counted():
    sides = sides_of(batch=256)
    every, few = evaluate_unlike(sides, band=1e9), evaluate_unlike(sides)
    assert every.num_candidates == few.num_candidates >= every.num_weighed >= few.num_weighed > 0
    assert few.plans[0] == every.plans[0]
    near = [each.layout for each in every.plans if each.step_seconds <= 1.1 * every.plans[0].step_seconds]
    assert near == [each.layout for each in evaluate_unlike(sides, band=0.1).plans[: len(near)]]
