"""What a running stage says of itself, from the events its gang sent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.report import records

from gangline.launch.protocol import GangEvent, GangStatus
from gangline.report.progress import StageOutlook, StageProgress


def step(number, *, rank=0, loss=2.5, tokens=1000, seconds=0.1, **phases):
    data = {"event": "step", "rank": rank, "step": number, "loss": loss, "tokens": tokens, "seconds": seconds}
    return GangEvent(kind="progress", data={**data, "phases": phases or {"forward": 0.06, "wait": 0.04}})


def job(index, jobs, steps=60):
    data = {"event": "job_started", "rank": 0, "seed": index + 1, "index": index, "jobs": jobs, "steps": steps}
    return GangEvent(kind="progress", data=data)


def seen(*events, **known):
    progress = StageProgress("train", **known)
    for event in events:
        progress.see(event)
    return progress


def test_the_sentence_holds_step_loss_speed_and_time_left():
    progress = seen(*(step(i) for i in range(1, 31)), plan="ddp-2", steps=60)
    assert progress.sentence() == "ddp-2 30/60 loss 2.5 · 10.0 k tokens/s · ETA 3.0 s"


def merged(blocks, **fields):
    data = {"event": "merged", "rank": 0, "blocks": blocks, "of": 400, "age_mean": 0.62, "silent_seconds": 2.0}
    return GangEvent(kind="progress", data=data | fields)


def test_merges_of_a_parameter_server_are_counted_in_blocks_and_name_a_silent_worker():
    events = [each for block in (1, 2, 3) for each in (merged(block), step(4 * block, seconds=0.8))]
    assert seen(*events, plan="4 x fsdp-8", steps=1600).sentence() == (
        "4 x fsdp-8 block 3/400 loss 2.5 \u00b7 age 0.6 \u00b7 1.2 k tokens/s \u00b7 ETA 5 min 18 s"
    )
    silent = merged(4, num_dropped=2, silent_seconds=180.0, silent_worker=2)
    said = seen(*events, silent, plan="4 x fsdp-8", steps=1600).sentence()
    assert (
        "block 4/400 loss 2.5 \u00b7 age 0.6, 2 dropped \u00b7 worker 2 has pushed nothing for 3 min 0 s \u00b7" in said
    )


def test_a_program_that_makes_more_steps_than_planned_is_not_said_to_finish():
    assert seen(*(step(i) for i in range(1, 9)), steps=5).sentence() == "step 8 loss 2.5 · 10.0 k tokens/s"


def test_a_gang_that_has_ended_has_no_time_left():
    ended = GangEvent(kind="state", text="ended", status=GangStatus(state="ended"))
    assert "ETA" not in seen(*(step(i) for i in range(1, 9)), ended, steps=500).sentence()


def test_steps_of_a_gang_that_its_queue_stopped_say_nothing_of_it_when_it_resumes():
    states = [GangEvent(kind="state", text=each, status=GangStatus(state=each)) for each in ("waiting", "starting")]
    progress = seen(step(1), step(2), states[0])
    progress.see(states[1])
    assert progress.state.startswith("starting")
    progress.see(step(3))
    progress.see(states[1])
    assert progress.state == "", "it steps again, whatever an older state says"


def test_when_a_gang_ends_is_known_while_it_steps_alone():
    progress = seen(steps=60)
    assert progress.ends_in_seconds is None
    for event in (step(i, seconds=2.0) for i in range(1, 31)):
        progress.see(event)
    assert progress.ends_in_seconds == progress.eta_seconds == 60.0
    progress.see(step(60, seconds=2.0))
    assert progress.ends_in_seconds is None
    assert seen(step(1)).ends_in_seconds is None


def test_a_gang_of_several_seeds_ends_after_the_last_one():
    progress = seen(job(0, 3), *(step(i, seconds=2.0) for i in range(1, 31)))
    assert (progress.eta_seconds, progress.ends_in_seconds) == (60.0, 300.0)
    progress.see(step(60, seconds=2.0))
    assert progress.ends_in_seconds == 240.0
    for event in (job(2, 3), step(60, seconds=2.0)):
        progress.see(event)
    assert progress.ends_in_seconds is None


def test_no_time_left_is_reported_before_the_third_step_and_the_first_one_counts_for_nothing():
    progress = seen(step(1, seconds=60.0), plan="ddp-2", steps=60)
    assert (progress.sentence(), progress.eta_seconds) == ("ddp-2 1/60 loss 2.5", None)
    progress.see(step(2))
    assert (progress.eta_seconds, progress.ends_in_seconds) == (None, None)
    progress.see(step(3))
    assert progress.sentence() == "ddp-2 3/60 loss 2.5 · 10.0 k tokens/s · ETA 5.7 s"


def test_the_first_step_after_a_restart_is_not_timed():
    again = GangEvent(kind="restart", text="rank 1 ended by signal 9")
    progress = seen(*(step(i) for i in range(1, 10)), again, step(5, seconds=60.0), steps=60)
    assert progress.eta_seconds == pytest.approx(5.5)


def test_the_next_seed_counts_from_its_own_first_step():
    progress = seen(job(0, 2), *(step(i) for i in range(1, 61)), job(1, 2))
    progress.see(GangEvent(kind="progress", data={"event": "busy", "rank": 0, "phase": "build", "step": 60}))
    assert progress.step == 0
    progress.see(step(1))
    assert progress.sentence() == "seed 2 (2 of 2) 1/60 loss 2.5 · 10.0 k tokens/s · ETA 5.9 s"


def rank_0(event, **data):
    return GangEvent(kind="progress", data={"event": event, "rank": 0, **data})


def stopping():
    return GangEvent(kind="state", status=GangStatus(state="stopping"))


def test_what_happens_between_steps_and_after_the_last_is_said():
    progress = seen(rank_0("busy", phase="build"), plan="ddp-2", steps=60)
    assert progress.sentence() == "ddp-2 building the model"
    progress.see(step(57))
    progress.see(step(58))
    says = [
        (step(59), "59/60 loss 2.5 · 10.0 k tokens/s · ETA 0.1 s"),
        (rank_0("busy", phase="checkpoint", step=60), "60/60 loss 2.5 · saving"),
        (rank_0("saved", step=60), "60/60 loss 2.5 · 10.0 k tokens/s · finishing"),
        (step(60), "60/60 loss 2.5 · 10.0 k tokens/s · finishing"),
        (rank_0("busy", phase="evaluate", step=60), "60/60 loss 2.5 · evaluating"),
        (rank_0("evaluated", step=60), "60/60 loss 2.5 · 10.0 k tokens/s · finishing"),
        (stopping(), "60/60 loss 2.5 · its ranks leave"),
    ]
    for event, words in says:
        progress.see(event)
        assert progress.sentence() == f"ddp-2 {words}"


def test_a_gang_that_is_stopped_saves_before_its_ranks_leave():
    progress = seen(step(20), stopping(), steps=60)
    assert progress.sentence() == "20/60 loss 2.5 · stopping"
    progress.see(rank_0("busy", phase="checkpoint", step=21))
    assert progress.sentence() == "21/60 loss 2.5 · stopping, saving"


def test_ranks_of_a_gang_without_steps_leave_when_they_are_done():
    progress = seen(rank_0("busy", phase="evaluate"), steps=60)
    assert progress.sentence() == "evaluating"
    progress.see(rank_0("done", exit=0))
    progress.see(stopping())
    assert progress.sentence() == "its ranks leave"


def test_other_ranks_and_saves_next_to_the_training_do_not_say_what_happens():
    evaluating = seen(step(20), rank_0("busy", phase="evaluate", step=20), rank_0("saved", step=20))
    assert evaluating.sentence().endswith("evaluating")
    evaluating.see(GangEvent(kind="progress", data={"event": "done", "rank": 1, "exit": 0}))
    assert evaluating.sentence().endswith("evaluating")
    evaluating.see(step(21))
    assert "evaluating" not in evaluating.sentence()


def test_after_the_last_step_it_finishes():
    assert seen(step(60), steps=60).sentence().endswith("finishing")


def test_a_waiting_sentence_goes_first_and_leaves_with_the_first_step():
    waiting = GangEvent(kind="waiting", text="ana holds 8 of 16 GPUs\x1b[31m")
    assert seen(waiting).sentence() == "waits: ana holds 8 of 16 GPUs"
    assert "waits" not in seen(waiting, step(1)).sentence()


def test_ranks_that_have_not_joined_are_counted():
    event = GangEvent(kind="state", status=GangStatus(state="starting", joined=1, ranks=2))
    assert seen(event).sentence() == "starting, 1 of 2 ranks joined"


def test_an_answer_that_is_old_says_its_age():
    away = GangEvent(kind="state", status=GangStatus(state="running", stale_seconds=25.0))
    assert seen(away, plan="ddp-2").sentence() == (
        "ddp-2 started · no response from where it runs for 25 s, its ranks continue"
    )
    assert "25 s" in seen(step(1), away).sentence()
    back = GangEvent(kind="state", status=GangStatus(state="running"))
    assert "no answer" not in seen(away, back).sentence()


def test_a_gang_that_steps_need_not_say_that_it_started():
    running = GangEvent(kind="state", status=GangStatus(state="running"))
    assert "started" in seen(running).sentence()
    assert "started" not in seen(step(1), running).sentence()


def test_a_state_older_than_the_steps_does_not_hide_them_and_a_restart_does():
    starting = GangEvent(kind="state", status=GangStatus(state="starting", joined=0, ranks=1))
    assert "starting" not in seen(step(20), starting, steps=60).sentence()
    again = seen(step(20), GangEvent(kind="restart", text="rank 0 died"), starting, steps=60)
    assert "starting, 0 of 1 ranks joined" in again.sentence()
    assert "starting" in seen(step(20), rank_0("started"), starting, steps=60).sentence()


def test_a_plan_alone_is_nothing_to_say():
    assert seen(GangEvent(kind="state", status=GangStatus(state="ended")), plan="ddp-2").sentence() == ""


def test_each_job_of_a_gang_starts_its_count_again():
    progress = seen(job(0, 3), step(60), job(1, 3, steps=40))
    assert (progress.step, progress.steps, progress.losses) == (0, 40, [])
    assert progress.sentence() == "seed 2 (2 of 3)"
    assert seen(job(0, 1)).sentence() == ""


def test_phases_are_shares_of_the_recent_steps_of_each_rank():
    progress = seen(step(1, forward=3.0, wait=1.0), step(1, rank=1, forward=1.0, wait=3.0))
    assert progress.slowest_first() == [(0, {"forward": 0.75, "wait": 0.25}), (1, {"forward": 0.25, "wait": 0.75})]


def test_of_many_ranks_those_that_wait_least_are_shown():
    progress = seen(*(step(1, rank=rank, forward=1.0, wait=float(rank)) for rank in range(100, 0, -1)))
    assert [rank for rank, _ in progress.slowest_first()] == list(range(1, 9))


def test_speed_is_left_out_where_a_batch_has_no_tokens():
    assert "tokens/s" not in seen(step(1, tokens=0)).sentence()


@pytest.mark.parametrize(
    "data",
    [{}, {"event": "saved"}, {"event": "step", "step": 1}, {"event": "step", "step": 1, "loss": None, "rank": 0}],
)
def test_any_rank_event_is_survived(data):
    assert isinstance(seen(GangEvent(kind="progress", data=data)).sentence(spark=12), str)


@given(
    losses=st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=50),
    seconds=st.floats(0, 1e6),
    spark=st.integers(0, 20),
)
def test_any_losses_make_a_sentence(losses, seconds, spark):
    progress = seen(*(step(i + 1, loss=loss, seconds=seconds) for i, loss in enumerate(losses)), steps=50)
    assert "\n" not in progress.sentence(spark=spark)


def test_the_plan_is_known_from_a_found_record_or_from_its_stage():
    outlook = StageOutlook()
    outlook.learn(records.bare())
    outlook.stage_ended("plan", records.passed().stages["plan"])
    assert (outlook.begin("train").plan, outlook.begin("train").steps) == ("ddp-2", 120)
    outlook.plan = "none"
    assert outlook.begin("train").plan == "1 rank"
    found = StageOutlook()
    found.learn(records.passed())
    assert (found.begin("train").plan, found.begin("train").steps) == ("ddp-2", 120)
