"""When nodes hear that a generation is over, without a gang."""

from gangline.train.outcome import Halt
from gangline.train.peers.ending import Ending


def test_nothing_speaks_against_a_generation_that_starts():
    ending = Ending()
    assert (ending.is_called, ending.is_late, ending.halt, ending.news()) == (False, False, None, None)


def test_who_is_certain_speaks_before_the_doubt_of_others_is_over_and_a_hang_stays_known():
    ending = Ending()
    ending.call(Halt(hangs=True), doubt=True)
    ending.call(Halt(), doubt=False)
    assert ending.is_called
    assert ending.halt == Halt(hangs=True)


def test_news_are_told_once():
    ending = Ending()
    ending.call(Halt(), doubt=False)
    assert [ending.news(), ending.news()] == [Halt(), None]


def test_who_is_asked_to_stop_is_not_late_at_once():
    ending = Ending()
    ending.allow(0.0)
    assert not ending.is_called
    assert not ending.is_late
