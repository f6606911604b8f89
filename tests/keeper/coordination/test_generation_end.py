"""When nodes hear that a generation is over, without a gang."""

from gangline.keeper.coordination.generations import GenerationEnd
from gangline.keeper.ranks.generation_result import Halt


def test_nothing_speaks_against_a_generation_that_starts():
    ending = GenerationEnd()
    assert (ending.is_called, ending.is_late, ending.halt, ending.news()) == (False, False, None, None)


def test_who_is_certain_speaks_before_the_doubt_of_others_is_over_and_a_hang_stays_known():
    ending = GenerationEnd()
    ending.call(Halt(hangs=True), doubt=True)
    ending.call(Halt(), doubt=False)
    assert ending.is_called
    assert ending.halt == Halt(hangs=True)


def test_news_are_told_once():
    ending = GenerationEnd()
    ending.call(Halt(), doubt=False)
    assert [ending.news(), ending.news()] == [Halt(), None]


def test_who_is_asked_to_stop_is_not_late_at_once():
    ending = GenerationEnd()
    ending.allow(0.0)
    assert not ending.is_called
    assert not ending.is_late
