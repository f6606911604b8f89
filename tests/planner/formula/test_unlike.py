"""Gangs of two kinds of GPU by formula, against every deal of passes to every layout, each weighed as of one kind."""

from dataclasses import replace
from itertools import product

import pytest
from tests.planner.formula.reference import A100, EIGHT, LINKS, SPACE, USABLE

from gangline.planner.formula.evaluate import LayoutCandidates
from gangline.planner.formula.inputs import Hardware, Question, formula_profile
from gangline.planner.formula.unlike import evaluate_unlike
from gangline.planner.layouts.enumerate import layouts

H100 = Hardware(flops_per_second=400e12, memory_bytes_per_second=3.0e12, links=replace(LINKS, inside=300e9))


def sides_of(*, servers=(1, 1), batch=48, usable=(USABLE, USABLE), overlap=0.0, latency=0.0, **space):
    """Questions about both kinds, and the ranks of each."""
    ranks = tuple(8 * each for each in servers)
    small = {"tp": (1, 2), "pp": (1,), "micro_batches": (1, 2), "recompute": ("none", "full"), "loss_chunks": (1, 8)}
    asked = replace(SPACE, world_size=sum(ranks), global_batch=batch, **small | space)
    questions = tuple(
        Question(
            model=EIGHT,
            space=asked,
            usable_bytes=room,
            hardware=replace(
                each, overlap=overlap, links=replace(each.links, inside_latency=latency, across_latency=latency)
            ),
        )
        for each, room in zip((H100, A100), usable, strict=True)
    )
    return questions, ranks


def of_one_kind(question, layout, way, passes):
    """Step and memory as the planner has them where all replicas take so many passes on this kind."""
    size, recompute, chunks, sync = way
    space = replace(
        question.space, global_batch=passes * size * layout.mesh.data_parallel, micro_batches=(size,),
        recompute=(recompute,), loss_chunks=(chunks,), syncs=(sync,),
    )  # fmt: skip
    return LayoutCandidates(replace(question, space=space), layout, {}).best()


def every_candidate(questions, ranks):
    """Seconds of every layout, way to run it and deal of passes that fits: slow and plain."""
    space = questions[0].space
    found = layouts(replace(space, global_batch=sum(ranks)), formula_profile(EIGHT))[0]
    for layout in found:
        replica, left = divmod(sum(ranks), layout.mesh.dp_replicate)
        if layout.mesh.dp_replicate == 1 or left or any(each % replica for each in ranks):
            continue
        counts = [each // replica for each in ranks]
        syncs = space.syncs if layout.wrapping.shards else ("last",)
        for way in product(space.micro_batches, space.recompute, space.loss_chunks, syncs):
            passes, left = divmod(space.global_batch, way[0] * layout.mesh.dp_shard)
            if left:
                continue
            for first in range(counts[0], passes - counts[1] + 1):
                most = [-(-own // count) for own, count in zip((first, passes - first), counts, strict=True)]
                plans = [of_one_kind(each, layout, way, own) for each, own in zip(questions, most, strict=True)]
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
    found = evaluate_unlike(*sides)[0][0]
    assert all(each.fits for each in found.kinds)
    assert found.step_seconds == pytest.approx(min(every_candidate(*sides)), rel=1e-9)


def test_shares_are_those_of_a_step_and_follow_the_speed():
    sides = sides_of(batch=256)
    [found, *_], search = evaluate_unlike(*sides)
    assert sum(found.shares) == 256
    assert len(found.shares) == found.layout.replicas
    assert 2 < max(found.shares) / min(found.shares) < 400 / 140 * 1.5
    assert min(found.shares) >= found.layout.mesh.dp_shard
    assert found.step_seconds > search.bound_seconds


def test_equal_kinds_take_equal_shares():
    (first, _), ranks = sides_of(batch=256)
    assert len(set(evaluate_unlike((first, first), ranks)[0][0].shares)) == 1


def test_kind_with_less_memory_bounds_what_both_run():
    roomy, tight = (sides_of(batch=256, usable=(USABLE, each)) for each in (USABLE, USABLE / 3))
    plans = [evaluate_unlike(*each)[0][0] for each in (roomy, tight)]
    assert plans[1].kinds[1].memory.total <= USABLE / 3 < plans[0].kinds[1].memory.total
    assert plans[1].step_seconds >= plans[0].step_seconds


def test_where_nothing_fits_the_nearest_miss_is_reported():
    plans, _ = evaluate_unlike(*sides_of(usable=(USABLE, 1e9)))
    assert [all(each.fits for each in gang.kinds) for gang in plans] == [False]


def test_layouts_within_the_band_are_all_there_and_the_others_are_counted():
    sides = sides_of(batch=256)
    (every, all_of_them), (few, some) = evaluate_unlike(*sides, band=1e9), evaluate_unlike(*sides)
    assert all_of_them.num_candidates == some.num_candidates >= all_of_them.num_weighed >= some.num_weighed > 0
    assert few[0] == every[0]
    near = [each.layout for each in every if each.step_seconds <= 1.1 * every[0].step_seconds]
    assert near == [each.layout for each in evaluate_unlike(*sides, band=0.1)[0][: len(near)]]
