"""Sequential test of paths and the search for what lossy ones share: figures, simulation, known culprits."""

import random
from itertools import combinations, permutations
from statistics import fmean

import pytest

from gangline.fabric.probe.links import (
    LossTest,
    ProbedPath,
    cleared_parts,
    excludes,
    localise,
    parts_of_path,
    probe_bits_per_second,
    probes_to_cover,
    probes_to_cover_surely,
    probes_to_find,
)


def test_figures_of_probing():
    assert round(probes_to_cover(64)) == 304
    assert probes_to_cover_surely(64) == 708
    assert [probes_to_find(loss) for loss in (0.1, 0.01, 0.001, 0.0001)] == [20, 252, 3502, 57_243]
    assert probe_bits_per_second() == 20_480


def test_coverage_is_that_of_drawn_ports():
    draw, counts = random.Random(1), []
    for _ in range(400):
        seen, count = set(), 0
        while len(seen) < 16:
            seen.add(draw.randrange(16))
            count += 1
        counts.append(count)
    assert fmean(counts) == pytest.approx(probes_to_cover(16), rel=0.05)
    assert sum(count <= probes_to_cover_surely(16) for count in counts) >= 398


def probes_until_named(loss, draw, *, most=10**6):
    """Probes until a path that loses `loss` is called lossy; arrivals between losses are drawn at once."""
    test = LossTest()
    while test.sent < most:
        arrived = 0
        while draw.random() >= loss:
            arrived += 1
        test.add_arrived(arrived)
        if test.add_lost():
            return test.sent
    return most


@pytest.mark.parametrize(("loss", "most"), [(1.0, 2), (0.3, 12), (0.1, 35), (0.01, 350), (0.003, 1200), (0.001, 3700)])
def test_lossy_path_is_named_within_about_the_expected_number_of_probes(loss, most):
    """Wald's mean takes no account of whole losses: of 1 % it says 252 probes, three losses come in 300."""
    draw = random.Random(2)
    counts = [probes_until_named(loss, draw) for _ in range(60)]
    assert fmean(counts) <= most
    assert fmean(counts) >= 0.5 * probes_to_find(min(loss, 0.999))


def test_loss_that_begins_late_is_named_as_soon():
    test = LossTest()
    test.add_arrived(10_000_000)
    assert not test.add_lost()
    assert test.add_lost()
    assert test.loss == 1.0


def test_healthy_path_is_not_named_in_a_simulated_month():
    draw, tests, lost = random.Random(3), [LossTest() for _ in range(32)], 0
    for test in tests:
        while test.sent < 30 * 86_400 * 10:
            test.add_arrived(round(draw.expovariate(1e-6)))
            test.add_lost()
            lost += 1
    assert lost > 700
    assert [test.is_lossy for test in tests] == [False] * 32


def test_clean_means_that_this_loss_would_have_shown():
    assert not excludes(300, 0.01)
    assert excludes(700, 0.01)
    assert not excludes(0, 1.0)
    assert excludes(1, 1.0)


SERVERS = {f"{group}{number}": group for group in "abc" for number in range(4)}


def mesh(is_failed, *, rails=(None,)):
    """All paths of a fabric of three groups of four servers, as failed ones and cleared parts."""
    paths = [
        ProbedPath(source=one, target=other, parts=parts_of_path(one, other, groups=SERVERS, rail=rail))
        for one, other in permutations(SERVERS, 2)
        for rail in rails
    ]
    clean = [(each, 1000) for each in paths if not is_failed(each)]
    return [each for each in paths if is_failed(each)], cleared_parts(clean, loss=0.5)


def names(suspects):
    return [each.parts for each in suspects]


def test_dead_host_is_distinguished_from_its_link_where_it_has_several_rails():
    assert names(localise(*mesh(lambda path: "host b2" in path.parts, rails=range(2)))) == [("host b2",)]
    assert names(localise(*mesh(lambda path: "link b2/1" in path.parts, rails=range(2)))) == [("link b2/1",)]
    assert names(localise(*mesh(lambda path: "host b2" in path.parts))) == [("host b2", "link b2")]


def test_leaf_and_uplinks_and_a_way_between_two_groups_are_named():
    assert names(localise(*mesh(lambda path: "leaf c" in path.parts))) == [("leaf c",)]
    assert names(localise(*mesh(lambda path: "uplinks a" in path.parts))) == [("uplinks a",)]
    assert names(localise(*mesh(lambda path: "way a to c" in path.parts))) == [("way a to c",)]


@pytest.mark.parametrize(("one", "other"), list(combinations(["link a1/0", "link b0/1", "leaf c/0", "uplinks b/1"], 2)))
def test_two_failures_at_once_are_both_named(one, other):
    found = localise(*mesh(lambda path: one in path.parts or other in path.parts, rails=range(2)))
    assert {each for parts in names(found) for each in parts} == {one, other}


def test_one_of_several_uplinks_is_named_by_the_paths_that_take_it():
    """Every second path from or to c hashes onto it: no part that all traffic crosses is to blame."""

    def takes_it(path):
        return "uplinks c" in path.parts and (int(path.source[1]) + int(path.target[1])) % 2 == 0

    (found,) = localise(*mesh(takes_it))
    assert (found.parts, found.is_partial) == (("uplinks c",), True)
    (whole,) = localise(*mesh(lambda path: "uplinks c" in path.parts))
    assert (whole.parts, whole.is_partial) == (("uplinks c",), False)


def test_path_that_shares_no_failed_part_represents_itself():
    failed, cleared = mesh(lambda path: (path.source, path.target) == ("a0", "b0"))
    (found,) = localise(failed, cleared)
    assert (found.parts, found.paths) == (failed[0].parts, tuple(failed))


def test_part_is_cleared_by_the_probes_of_all_paths_over_it():
    clean = [(ProbedPath(source="a", target=each, parts=("leaf", f"host {each}")), 400) for each in "bcd"]
    assert cleared_parts(clean, loss=0.01) == {"leaf"}
    assert cleared_parts(clean, loss=0.03) == {"leaf", "host b", "host c", "host d"}
    assert cleared_parts(clean, loss=0.001) == frozenset()


def test_nothing_failed_names_nothing():
    assert localise([], []) == ()
