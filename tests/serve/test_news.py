"""What watchers and orders are told of an ended run: the verdict with what it does not say."""

import json

from tests.report import records

from gangline.serve.news import end_news, record_news
from gangline.serve.orders.ending import answered
from gangline.serve.types import Order

WORDS = "passed, 1 gate could not judge"


def test_an_event_has_the_verdict_for_programs_and_in_words():
    for news in (record_news(records.passed()), end_news(records.passed())):
        told = json.loads(news.data)
        assert (told["verdict"], told["words"]) == ("passed", WORDS)
    assert json.loads(end_news(records.passed()).data)["reason"].startswith("no gate said no; not judged: quality:")
    assert json.loads(record_news(records.refused()).data)["words"] == "refused"


def test_the_note_of_an_order_says_what_no_gate_could_judge():
    order = Order(project="bytegpt", ref="refs/heads/main", branch="main")
    assert answered(order, records.passed()).note.startswith(f"{WORDS}: no gate said no; not judged")
