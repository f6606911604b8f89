"""When the end of a generation is sent to all nodes, without a gang."""

from gangline.keeper.coordination.generations import GenerationEnd
from gangline.keeper.ranks.generation_result import Halt


def test_generation_that_starts_has_no_halt():
    ending = GenerationEnd()
    assert (ending.is_announced, ending.is_late, ending.halt, ending.take_halt()) == (False, False, None, None)


def test_first_failure_ends_the_wait_of_secondary_ones_and_a_hang_stays_known():
    ending = GenerationEnd()
    ending.announce(Halt(hangs=True), secondary=True)
    ending.announce(Halt(), secondary=False)
    assert ending.is_announced
    assert ending.halt == Halt(hangs=True)


def test_halt_is_taken_once():
    ending = GenerationEnd()
    ending.announce(Halt(), secondary=False)
    assert [ending.take_halt(), ending.take_halt()] == [Halt(), None]


def test_node_that_was_asked_to_stop_is_not_late_at_once():
    ending = GenerationEnd()
    ending.extend(0.0)
    assert not ending.is_announced
    assert not ending.is_late
