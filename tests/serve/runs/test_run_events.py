"""What watchers and orders are told of an ended run: the verdict with what it does not say."""

import json

from tests.report import records

from gangline.serve.database.types import Order
from gangline.serve.orders.retry_policy import after_run
from gangline.serve.runs.watchers import end_event, record_event

WORDS = "passed, 1 gate could not judge"


def test_an_event_has_the_verdict_for_programs_and_in_words():
    for news in (record_event(records.passed()), end_event(records.passed())):
        reported = json.loads(news.data)
        assert (reported["verdict"], reported["words"]) == ("passed", WORDS)
    assert json.loads(end_event(records.passed()).data)["reason"].startswith("no gate said no; not judged: quality:")
    assert json.loads(record_event(records.refused()).data)["words"] == "refused"


def test_the_note_of_an_order_says_what_no_gate_could_judge():
    order = Order(project="bytegpt", ref="refs/heads/main", branch="main")
    assert after_run(order, records.passed()).note.startswith(f"{WORDS}: no gate said no; not judged")
