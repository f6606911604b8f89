"""A drill is held, broken with its reason, or not struck; what it cost is charged to it."""

from dataclasses import replace

import pytest
from tests.drill.test_history import KILL, KILLED
from tests.report.records import passed

from gangline.drill.catalogue import DRILLS, choose_drill
from gangline.drill.evaluate import DrillObservations, InvariantResult, evaluate, not_injected, with_drill
from gangline.drill.history import Aftermath, Availability, Injection, SampleCounts, aftermath
from gangline.drill.run import EXIT_CODES, verdict_text
from gangline.errors import ConfigError
from gangline.spec.config.site import DrillTable, LaunchTable, Site, StoreTable

KIND = DRILLS["kill-rank"]
FREEZE = DRILLS["freeze-rank"]
STOP = Injection(rank=1, step=4, generation=0, mono=4.5, seconds=5.0)
IGNORED = (
    "the program ignores stop requests: rank 1 got SIGTERM and trained on to step 9; a program that reads "
    "stop_asked saves and leaves"
)


def test_a_kill_that_came_back_within_an_interval_held():
    drill = evaluate(KIND, KILL, aftermath(KILLED, KILL), DrillObservations(), interval=2, seed=7)
    assert (drill.result, drill.reason, drill.lost_steps) == ("held", "", 2)
    assert drill.arguments == {"rank": 1, "step": 4, "seed": 7}


@pytest.mark.parametrize(
    ("kind", "done", "times", "reason"),
    [
        (KIND, KILL, (0.1, 15.1), "recovered in 15.1 s, target <= 15 s"),
        (KIND, KILL, (0.1, 14.9), ""),
        (FREEZE, STOP, (20.0, 31.0), "recovered in 11.0 s, target <= 10 s past the watchdog"),
        (FREEZE, STOP, (20.0, 29.0), ""),
        (FREEZE, STOP, (None, 31.0), ""),
    ],
)
def test_a_recovery_beyond_its_target_held_late(kind, done, times, reason):
    after = Aftermath(detect_seconds=times[0], recover_seconds=times[1])
    drill = evaluate(kind, done, after, DrillObservations(), interval=2, seed=7)
    assert (drill.result, drill.reason) == ("held_late" if reason else "held", reason)
    assert verdict_text(drill) == ("HELD LATE" if reason else "HELD")
    assert EXIT_CODES[drill.result] == 0


@pytest.mark.parametrize(
    ("kind", "done", "change", "interval", "invariants", "reason"),
    [
        (KIND, KILL, {"lost_steps": 3, "durable": 4}, 2, (), "lost 3 steps, promised at most 2"),
        (KIND, KILL, {"lost_steps": 3, "durable": 1, "saves_failed": True}, 2, (), "lost 3 steps, promised at most 2"),
        (
            KIND,
            KILL,
            {"lost_steps": 4, "checkpoint_step": 0, "durable": 0, "saves": False},
            2,
            (),
            "the program saves nothing, so it started from the beginning: lost 4 steps, promised at most 2",
        ),
        (KIND, KILL, {"recover_seconds": None}, 2, (), "no further step was finished"),
        (KIND, KILL, {"detect_seconds": None}, 2, (), "no keeper noticed"),
        (KIND, KILL, {"breaks": ("step 3 followed step 1",)}, 2, (), "step 3 followed step 1"),
        (KIND, KILL, {}, 2, (InvariantResult(name="I4", state="broken", text="process 7"),), "I4: process 7"),
        (FREEZE, STOP, {}, 2, (), "a stop of 5.0 s cost a restart"),
        (
            DRILLS["hang-rank"],
            KILL,
            {"detect_seconds": 16.5, "detected": "rank 1 hangs", "usual_step": 1.0},
            2,
            (),
            "found after 16.5 s, promised within 16.0 s",
        ),
        (DRILLS["hang-rank"], KILL, {"detected": "rank 0 hangs"}, 2, (), "rank 1 hung, detected was: rank 0 hangs"),
        (DRILLS["kill-twice"], KILL, {"charged": 3}, 2, (), "two kills cost 3 restarts of the budget"),
        (
            DRILLS["stop"],
            KILL,
            {"went_on_to": 9, "recover_seconds": None, "lost_steps": None, "charged": 0},
            2,
            (),
            IGNORED,
        ),
        (DRILLS["stop"], KILL, {"lost_steps": 0}, 2, (), "1 restarts were charged, promised none"),
        (
            DRILLS["resize"],
            replace(KILL, ranks=3),
            {"lost_steps": 1, "charged": 0},
            2,
            (),
            "lost 1 steps, promised none: all ranks save before they leave; continued with 2 ranks, 3 were requested",
        ),
        (DRILLS["slow-rank"], STOP, {"detect_seconds": None, "restarts": 0}, 2, (), "rank 1 was not reported as slow"),
    ],
)
def test_a_broken_promise_is_named(kind, done, change, interval, invariants, reason):
    after = replace(aftermath(KILLED, KILL), **change)
    drill = evaluate(kind, done, after, DrillObservations(invariants=invariants), interval=interval, seed=1)
    assert (drill.result, drill.reason) == ("broken", reason)


POISON = replace(KILL, stays=True, ends=31)
OOM = replace(KILL, stays=True, ends=32)
BAD = "step 5 is not finite: stop"


@pytest.mark.parametrize(
    ("name", "done", "change", "reason"),
    [
        ("poison", POISON, {}, "no step was reported as not finite; promised exit 31, not finite; it continued"),
        ("poison", POISON, {"answer": "stop", "detected": BAD, "exit_code": 30},
         "promised exit 31, not finite; it ended with 30"),
        ("poison", POISON, {"answer": "stop", "detected": BAD, "exit_code": 31, "bad_saves": (5,)},
         "step 5 was saved after the fault"),
        ("poison", POISON, {"answer": "stop", "detected": "step 9 is not finite: stop", "exit_code": 31},
         "step 5 was poisoned, detected was: step 9 is not finite: stop"),
        ("poison", replace(POISON, ends=None), {"answer": "skip", "detected": BAD, "charged": 1},
         "a bad batch cost 1 restarts of the budget"),
        ("oom", OOM, {"exit_code": 30}, "promised exit 32, out of memory; it ended with 30"),
        ("oom", OOM, {"exit_code": 32, "restarts": 2}, "2 generations tried again with as much memory"),
        ("lose-node", KILL, {"recover_seconds": 2.0, "charged": 2, "detect_seconds": 0.1, "source": "copy"},
         "one lost node cost 2 restarts of the budget"),
        ("lose-node", KILL, {"recover_seconds": 2.0, "detect_seconds": 0.1},
         "nothing was opened again: neither a copy in memory nor the store had a checkpoint"),
        ("lose-node", KILL, {"recover_seconds": 2.0, "source": "copy"}, "no keeper noticed"),
    ],
)  # fmt: skip
def test_a_fault_from_within_or_of_a_node_breaks_what_it_promised(name, done, change, reason):
    drill = evaluate(
        DRILLS[name], done, replace(Aftermath(lost_steps=0), **change), DrillObservations(), interval=2, seed=1
    )
    assert (drill.result, drill.reason) == ("broken", reason)


AWAY = replace(STOP, stays=True, every=2, steps=20, patience=60.0)
FELT = Availability(
    steps=9, usual_step=0.5, step_during=0.5, met_step=6, met_seconds=0.3, durable_step=8, durable_seconds=1.0
)
FULL = replace(FELT, failed=1, failed_seconds=0.4, said="507 XMinioStorageFull: the store is full")


@pytest.mark.parametrize(
    ("name", "change", "restarts", "reason"),
    [
        ("kill-store", {}, 1, "an outage of the store cost 1 restarts"),
        ("kill-store", {"steps": 0}, 0, "no step was finished during the outage"),
        ("kill-store", {"durable_step": None}, 0, "nothing was saved after the outage"),
        ("slow-store", {"step_during": 0.9}, 0, "steps took 0.90 s during the outage, before 0.50 s"),
        ("fill-disk", {"failed": 0}, 0, "no save was reported as failed"),
        ("fill-disk", {"said": "who knows"}, 0, "the reason of the failure is not a full disk: who knows"),
        ("fill-disk", {"gave_up": True}, 0, "the ranks exited before train.checkpoint.max_unsaved_seconds"),
    ],
)
def test_a_store_in_trouble_may_cost_no_step_and_no_save_for_good(name, change, restarts, reason):
    effect = replace(FULL if name == "fill-disk" else FELT, **change)
    drill = evaluate(
        DRILLS[name], AWAY, Aftermath(restarts=restarts), DrillObservations(effect=effect), interval=2, seed=1
    )
    assert (drill.result, drill.reason) == ("broken", reason)


@pytest.mark.parametrize("name", ["kill-store", "slow-store", "fill-disk"])
def test_a_store_in_trouble_that_cost_nothing_held(name):
    effect = FULL if name == "fill-disk" else FELT
    drill = evaluate(DRILLS[name], AWAY, Aftermath(), DrillObservations(effect=effect), interval=2, seed=1)
    assert (drill.result, drill.recover_seconds) == ("held", 1.0)
    assert drill.detect_seconds == (0.4 if name == "fill-disk" else 0.3)


def test_a_disk_that_stays_full_too_long_ends_ranks_with_40_and_only_then():
    long = replace(AWAY, seconds=90.0)
    gave_up = DrillObservations(effect=replace(FULL, gave_up=True))
    assert evaluate(DRILLS["fill-disk"], long, Aftermath(restarts=1), gave_up, interval=2, seed=1).result == "held"
    went_on = evaluate(DRILLS["fill-disk"], long, Aftermath(), DrillObservations(effect=FULL), interval=2, seed=1)
    assert "without exit 40" in went_on.reason


def test_a_lost_sample_or_a_half_checkpoint_breaks_any_drill():
    after = aftermath(KILLED, KILL)
    lost = evaluate(KIND, KILL, after, DrillObservations(samples=SampleCounts(lost=8, twice=3)), interval=2, seed=1)
    assert (lost.reason, lost.lost_samples) == ("8 samples were left out, 3 count twice", 8)
    untold = evaluate(KIND, KILL, after, DrillObservations(samples=SampleCounts(counted=False)), interval=2, seed=1)
    assert (untold.result, untold.lost_samples) == ("held", None)
    half = evaluate(
        KIND,
        KILL,
        after,
        DrillObservations(bad_checkpoints=("the checkpoint of step 4 is listed, but half",)),
        interval=2,
        seed=1,
    )
    assert half.reason == "the checkpoint of step 4 is listed, but half"


def test_a_save_that_was_under_way_excuses_the_interval_before_it():
    after = replace(aftermath(KILLED, KILL), lost_steps=3, durable=1)
    assert evaluate(KIND, KILL, after, DrillObservations(), interval=2, seed=1).result == "held"


def test_a_short_stop_that_cost_nothing_held_and_a_pending_invariant_breaks_nothing():
    after = Aftermath(recover_seconds=5.3, lost_steps=0, lost_seconds=5.3)
    pending = (InvariantResult(name="I4", state="pending"), InvariantResult(name="I3", state="-"))
    assert evaluate(FREEZE, STOP, after, DrillObservations(invariants=pending), interval=30, seed=1).result == "held"


def test_a_slow_rank_loses_no_time_that_could_be_reported():
    after = Aftermath(
        detect_seconds=4.0, detected="rank 1 is slow", recover_seconds=5.3, lost_steps=0, lost_seconds=5.3
    )
    soon_over = replace(after, recover_seconds=None, lost_seconds=None)
    assert evaluate(DRILLS["slow-rank"], STOP, soon_over, DrillObservations(), interval=30, seed=1).result == "held"
    drill = evaluate(DRILLS["slow-rank"], STOP, after, DrillObservations(), interval=30, seed=1)
    assert (drill.result, drill.detect_seconds, drill.recover_seconds, drill.lost_seconds) == ("held", 4.0, None, None)


def test_a_drill_is_in_the_record_once_and_replaces_its_mark():
    record = passed()
    mark = not_injected(KIND, "under way", seed=7)
    marked = with_drill(record, mark)
    assert with_drill(marked, mark) is marked
    drill = evaluate(KIND, KILL, aftermath(KILLED, KILL), DrillObservations(), interval=2, seed=7)
    assert with_drill(with_drill(record, drill), drill).drills == (drill,)


def test_the_lost_time_of_all_ranks_is_charged_to_the_drill():
    record = passed()
    rows = {**record.ledger.seconds, "restart": 4.0, "redone": 1.0}
    record = replace(record, ledger=replace(record.ledger, seconds=rows))
    drill = replace(
        evaluate(KIND, KILL, aftermath(KILLED, KILL), DrillObservations(), interval=2, seed=7), lost_seconds=2.25
    )
    after = with_drill(record, drill).ledger.seconds
    assert (after["drill"], after["restart"], after["redone"]) == (4.5, 0.0, 0.5)


@pytest.mark.parametrize(
    ("name", "site", "said"),
    [
        ("drop-api", Site(), "needs a launcher behind"),
        ("no-such", Site(), "available: kill-rank, kill-twice"),
        ("kill-rank", Site(launch=LaunchTable(target="kubernetes")), "these ranks are on kubernetes"),
        ("kill-rank", Site(store=StoreTable(url="s3://b/p", endpoint="http://h")), r'drill\.allow = \["kill-rank"\]'),
    ],
)
def test_a_drill_that_may_not_run_is_refused_with_what_works(name, site, said):
    with pytest.raises(ConfigError, match=said):
        choose_drill(name, site)


def test_a_site_with_a_shared_store_may_allow_a_drill_by_name():
    site = Site(store=StoreTable(url="s3://b/p", endpoint="http://h"), drill=DrillTable(allow=("freeze-rank",)))
    assert choose_drill("freeze-rank", site) is FREEZE
