"""What a gang wrote around a strike, measured against histories made by hand."""

import json
from dataclasses import replace

from gangline.drill.history import DrillHistory, Injection, aftermath, steps_backwards


def step(number, mono, generation=0, rank=0):
    return {"event": "step", "rank": rank, "generation": generation, "step": number, "mono": mono}


KILL = Injection(rank=1, step=4, generation=0, mono=4.5)
KILLED = DrillHistory(
    ranks=(
        step(1, 1.0), step(2, 2.0),
        {"event": "saved", "rank": 0, "generation": 0, "step": 2, "mono": 2.5},
        step(3, 3.0), step(4, 4.0),
        {"event": "resumed", "rank": 0, "generation": 1, "step": 2, "mono": 6.0, "checkpoint": "c"},
        step(3, 6.5, 1), step(4, 7.0, 1), step(5, 7.5, 1),
    ),
    keepers=(
        {"event": "generation_started", "mono": 0.1, "generation": 0, "world_size": 2},
        {"event": "rank_exited", "mono": 4.6, "rank": 1, "code": 137, "signal": 9},
        {"event": "restart", "mono": 4.7, "reason": "rank 1 ended by signal 9", "charged": True},
        {"event": "generation_started", "mono": 4.8, "generation": 1, "world_size": 2},
    ),
)  # fmt: skip


def test_a_kill_is_measured_from_strike_to_the_step_after_the_one_reached():
    after = aftermath(KILLED, KILL)
    assert after.detected == "rank 1 ended by signal 9, class same, 1 restart charged"
    assert [round(value, 6) for value in (after.detect_seconds, after.recover_seconds, after.lost_seconds)] == [
        0.1,
        2,
        3,
    ]
    assert (after.new_step, after.checkpoint_step, after.lost_steps, after.restarts) == (3, 2, 2, 1)
    assert (after.reached, after.durable, after.saves_failed) == (4, 2, False)
    assert after.breaks == ()


def test_a_step_that_a_peer_still_finishes_after_the_kill_is_not_a_recovery():
    late = DrillHistory(ranks=(*KILLED.ranks[:5], step(5, 4.51)), keepers=KILLED.keepers[:1])
    after = aftermath(late, KILL)
    assert (after.recover_seconds, after.lost_seconds) == (None, None)


def test_a_generation_that_takes_no_notice_of_a_request_to_stop_went_on():
    ignored = DrillHistory(ranks=(*KILLED.ranks[:5], step(5, 5.0), step(6, 6.0)), keepers=KILLED.keepers[:1])
    assert aftermath(ignored, KILL).went_on_to == 6
    assert aftermath(KILLED, KILL).went_on_to is None


def test_without_a_checkpoint_everything_is_lost():
    ranks = tuple(e for e in KILLED.ranks if e["event"] == "step" and e["generation"] == 0)
    anew = tuple(step(number, 6.0 + number, 1) for number in range(1, 6))
    after = aftermath(DrillHistory(ranks=ranks + anew, keepers=KILLED.keepers), KILL)
    assert (after.new_step, after.lost_steps, after.checkpoint_step) == (1, 4, 0)


def test_whether_a_program_saves_is_seen_at_any_time():
    assert aftermath(KILLED, KILL).saves
    never = replace(KILLED, ranks=tuple(each for each in KILLED.ranks if each["event"] != "saved"))
    assert not aftermath(never, KILL).saves
    late = {"event": "saved", "mono": 99.0, "rank": 0, "generation": 1, "step": 6}
    assert aftermath(replace(never, ranks=(*never.ranks, late)), KILL).saves


def test_a_short_stop_recovers_without_a_new_generation():
    stop = Injection(rank=1, step=4, generation=0, mono=4.5, seconds=5.0)
    ranks = (*KILLED.ranks[:5], step(5, 4.6), step(6, 9.8), step(7, 10.0))
    after = aftermath(DrillHistory(ranks=ranks, keepers=KILLED.keepers[:1]), stop)
    assert (after.new_step, after.lost_steps, after.restarts) == (6, 0, 0)
    assert round(after.recover_seconds, 6) == 5.3


def test_a_long_stop_is_declared_by_the_watchdog():
    stop = Injection(rank=1, step=4, generation=0, mono=4.5, seconds=60.0)
    hung = {"event": "watchdog", "mono": 4.6, "rank": 1, "reason": "rank 1 stood still for 12 s"}
    keepers = (KILLED.keepers[0], hung, *KILLED.keepers[2:])
    after = aftermath(DrillHistory(ranks=KILLED.ranks, keepers=keepers), stop)
    assert after.detected == "watchdog: rank 1 stood still for 12 s, 1 restart charged"
    assert after.new_step == 3


def test_a_generation_below_a_durable_checkpoint_breaks_the_promise():
    steps = [step(number, number) for number in range(1, 7)]
    saved = {"event": "saved", "rank": 0, "generation": 0, "step": 4, "mono": 4.5}
    events = sorted([*steps, saved], key=lambda event: event["mono"])
    assert steps_backwards(DrillHistory(ranks=(*events, step(5, 8, 1), step(6, 9, 1)))) == []
    assert steps_backwards(DrillHistory(ranks=(*events, step(4, 8, 1)))) == [
        "generation 1 began at step 4, 4 was durable"
    ]
    assert steps_backwards(DrillHistory(ranks=(step(1, 1), step(3, 2)))) == ["step 3 followed step 1"]


def test_files_of_a_gang_are_read_in_order_of_time_and_torn_lines_are_left_out(tmp_path):
    (tmp_path / "out" / "ranks").mkdir(parents=True)
    (tmp_path / "out" / "ranks" / "0.jsonl").write_text(json.dumps(step(2, 2.0)) + "\n" + json.dumps(step(3, 3.0))[:20])
    (tmp_path / "out" / "ranks" / "1.jsonl").write_text(json.dumps(step(1, 1.0, rank=1)) + "\nnot json\n[1]\n")
    (tmp_path / "keeper-0.jsonl").write_text(json.dumps(KILLED.keepers[0]) + "\n")
    history = DrillHistory.read(tmp_path)
    assert [event["step"] for event in history.ranks] == [1, 2]
    assert len(history.keepers) == 1


def test_a_save_at_the_first_step_of_a_generation_is_not_a_way_back():
    saved = {"event": "saved", "rank": 0, "generation": 1, "step": 3, "mono": 6.4}
    ranks = (*KILLED.ranks[:6], saved, *KILLED.ranks[6:])
    assert steps_backwards(DrillHistory(ranks=ranks, keepers=())) == []


def test_a_rollback_goes_back_on_purpose_and_a_leap_is_a_break():
    back = {"event": "resumed", "rank": 0, "generation": 1, "step": 4, "mono": 8.0}
    assert steps_backwards(DrillHistory(ranks=(*KILLED.ranks, back, step(5, 8.5, 1)))) == []
    assert steps_backwards(DrillHistory(ranks=(*KILLED.ranks, step(5, 8.5, 1)))) == ["step 5 followed step 5"]
