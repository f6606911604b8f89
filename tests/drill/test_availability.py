"""What a gang felt of its store's trouble, from histories made by hand."""

from dataclasses import replace

from tests.drill.test_history import step

from gangline.drill.history import Availability, DrillHistory, Injection, availability

AWAY = Injection(rank=0, step=3, generation=0, mono=3.5, seconds=4.0, stays=True, every=4, steps=12)


def word(event, number, mono, **more):
    return {"event": event, "rank": 0, "generation": 0, "step": number, "mono": mono} | more


STEPS = tuple(step(number, float(number)) for number in range(1, 11))


def test_steps_continue_while_a_save_waits_and_is_durable_when_the_store_is_back():
    history = DrillHistory(ranks=(*STEPS, word("saved", 4, 8.0)))
    assert availability(history, AWAY) == Availability(
        steps=4, usual_step=1.0, step_during=1.0, met_step=4, met_seconds=0.5, durable_step=4, durable_seconds=0.5
    )


def test_a_failed_save_is_reported_with_its_reason_and_the_next_one_is_the_recovery():
    ranks = (*STEPS, word("save_failed", 4, 4.2, reason="no space is left"), word("saved", 8, 9.5))
    effect = availability(DrillHistory(ranks=ranks), AWAY)
    assert (effect.failed, round(effect.failed_seconds, 6), effect.said) == (1, 0.7, "no space is left")
    assert (effect.durable_step, effect.durable_seconds) == (8, 2.0)


def test_a_save_from_before_the_strike_is_not_a_recovery_and_a_slow_store_recovers_while_it_is_slow():
    history = DrillHistory(ranks=(*STEPS, word("saved", 2, 8.0), word("saved", 4, 6.5)))
    assert availability(history, AWAY).durable_step is None
    assert availability(history, AWAY, slow=True).durable_seconds == 3.0


def test_an_outage_between_two_saves_met_none():
    assert availability(DrillHistory(ranks=STEPS), replace(AWAY, every=100, steps=100)).met_step is None


def test_a_rank_that_gave_up_left_with_40():
    gone = {"event": "rank_exited", "mono": 7.0, "rank": 0, "code": 40}
    assert availability(DrillHistory(ranks=STEPS, keepers=(gone,)), AWAY).gave_up
    assert not availability(DrillHistory(ranks=STEPS, keepers=(gone | {"mono": 1.0},)), AWAY).gave_up
