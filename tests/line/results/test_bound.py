"""What bounds a training, from the shares of its ranks: the largest loss, and what to do about it."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.line.results.bound import LEAST, ShardReads, bound_text, diagnose_bound, find_bound
from gangline.report.diagnoses import diagnosis_text
from gangline.spec.data_source import DatasetUse, DataSource

WIKI = DatasetUse(name="wiki", version="3f2a91c4", digest="d", num_samples=10, size_bytes=10)


def shares(data=0.0, wait=0.0, bubble=0.0):
    work = 1 - data - wait - bubble
    return {"data": data, "forward": work / 3, "backward": 2 * work / 3, "wait": wait, "bubble": bubble}


@pytest.mark.parametrize(
    ("ranks", "bound", "share"),
    [
        ([shares(data=0.31), shares(data=0.30, wait=0.01)], "data", 0.31),
        ([shares(data=0.30), shares(wait=0.30)], "data", 0.30),
        ([shares(data=0.02, wait=0.2), shares(data=0.02, wait=0.22)], "network", 0.2),
        ([shares(), shares(wait=0.3), shares(wait=0.3)], "imbalance", 0.2),
        ([shares(bubble=0.2), shares(bubble=0.3)], "bubble", 0.25),
        ([shares(data=0.04), shares(data=0.04, wait=0.03)], "compute", 0.94),
        ([shares(data=0.2, wait=0.0), shares(data=0.1, wait=0.6)], "imbalance", 0.3),
    ],
)
def test_the_largest_loss_is_what_bounds(ranks, bound, share):
    found = find_bound(ranks)
    assert found == (bound, pytest.approx(share, abs=0.011))


@pytest.mark.parametrize("ranks", [[], [{"other": 1.0}], [{}]])
def test_programs_that_report_no_phases_have_no_verdict(ranks):
    assert find_bound(ranks) is None
    assert diagnose_bound(ranks, source=DataSource(), reads=ShardReads(), measures_waits=True) == ()


@given(st.lists(st.tuples(st.floats(0, 0.3), st.floats(0, 0.3), st.floats(0, 0.3)), min_size=1, max_size=9))
def test_a_verdict_has_its_share_of_a_step_and_below_the_least_it_is_compute(ranks):
    bound, share = find_bound([shares(*each) for each in ranks])
    assert share <= 1
    assert bound == "compute" or share >= LEAST
    assert bound_text(bound, share)


def diagnosis(ranks, source=None, events=(), measures_waits=True):
    reads = ShardReads.of(events)
    found = diagnose_bound(ranks, source=source or DataSource(), reads=reads, measures_waits=measures_waits)
    return diagnosis_text(found[0]) if found else ""


def test_samples_that_are_fetched_while_training_are_to_be_warmed_and_slow_decoding_gets_workers():
    event = {"event": "shards", "bytes": 42e9, "seconds": 200.0, "fetched": 90, "cached": 10}
    ranks = [shares(data=0.31)]
    assert diagnosis(ranks, DataSource(sets=(WIKI,)), [event, {"event": "step"}]) == (
        "bound by data: a step waits 31 % for samples; 1.4 times as fast without · store 210 MB/s · 10 % of reads "
        "cached; next: fetch the shards before training: gangline data warm wiki@3f2a91c4"
    )
    cached = event | {"fetched": 0, "bytes": 0, "seconds": 0}
    assert diagnosis(ranks, DataSource(sets=(WIKI,), workers=2), [cached]).endswith(
        "100 % of reads cached; next: data.workers = 4 in line.toml"
    )
    assert diagnosis(ranks, DataSource()).endswith("without; next: data.workers = 2 in line.toml")


def test_computation_is_no_finding_where_waits_are_not_measured():
    assert diagnosis([shares()], measures_waits=False) == ""
    assert diagnosis([shares()]).startswith("bound by compute: ranks compute in 100 % of a step; next: ")
    assert diagnosis([shares(data=0.2)], measures_waits=False).startswith("bound by data")


@pytest.mark.parametrize("event", [{}, {"bytes": "many"}, {"bytes": -1, "cached": float("nan")}, {"fetched": None}])
def test_what_a_rank_wrote_of_its_reads_fails_nothing(event):
    assert ShardReads.of([{"event": "shards", **event}]) == ShardReads()


CAUSES = ("data", "decode", "network", "imbalance", "compute")


def simulated(cause, dice):
    """Shares of a gang of 2 to 16 ranks with noise of 1 % of a step, in which one thing takes 8 to 50 % of it."""
    ranks, loss = dice.randint(2, 16), dice.uniform(0.08, 0.5)
    slow = dice.randrange(ranks)
    found = []
    for rank in range(ranks):
        noise = [abs(dice.gauss(0, 0.01)) for _ in range(2)]
        data = loss if cause == "data" or (cause == "decode" and rank == slow) else 0.0
        wait = {"network": loss, "decode": loss * (rank != slow)}.get(cause, 0.0)
        wait = (0.0 if rank == slow else 2 * loss if ranks == 2 else 1.3 * loss) if cause == "imbalance" else wait
        found.append(shares(data=data + noise[0], wait=min(wait + noise[1], 0.9 - data)))
    return found


@pytest.mark.row("DL7")
def test_simulated_causes_are_named_in_95_of_100():
    dice = random.Random(65)
    right = 0
    for number in range(500):
        cause = CAUSES[number % len(CAUSES)]
        bound, _ = find_bound(simulated(cause, dice))
        right += bound == {"decode": "data"}.get(cause, cause)
    assert right >= 475, right
