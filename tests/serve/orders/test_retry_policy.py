"""What an order does after a failure, without a driver."""

from gangline.serve.database.types import Order
from gangline.serve.orders.retry_policy import MOST_TRIES, RETRY_SECONDS, after_exit

ROOM, AWAY = 20, 40


def exits(code, times):
    """The order after its driver ended with `code` so many times, at second 0 each time."""
    order = Order(project="cheap", ref="refs/heads/main")
    for _ in range(times):
        order = after_exit(order, code, record=None, last_message="away", now=0.0)
    return order


def test_what_keeps_failing_is_tried_five_times_after_growing_pauses_and_then_put_aside():
    tried = [exits(AWAY, times) for times in range(1, MOST_TRIES)]
    assert [(each.state, each.not_before) for each in tried] == [("parked", seconds) for seconds in RETRY_SECONDS]
    aside = exits(AWAY, MOST_TRIES)
    assert (aside.state, aside.tries, MOST_TRIES) == ("quarantined", 5, 5)
    assert aside.note == "failed 5 times, the last time: away"


def test_waits_for_room_are_no_tries():
    waits = exits(ROOM, 2 * MOST_TRIES)
    assert (waits.state, waits.tries, waits.not_before) == ("parked", 0, 60.0)
