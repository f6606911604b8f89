"""The budget of open connections, by a clock of its own."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gangline.serve.web.client_address import ClientAddresses
from gangline.serve.web.connection_limits import IDLE_SECONDS, Connections

MOST, EACH = 12, 6
PROXY = "10.0.0.1"


class Peer:
    def __init__(self, address):
        self.address = address
        self.is_waiting, self.was_answered, self.is_open = True, False, True

    def evict(self):
        assert self.is_waiting, "one that was being answered was cut"
        self.is_open = False


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def budget(clock=None):
    return Connections(ClientAddresses([PROXY]), limit=MOST, limit_each=EACH, clock=clock or Clock())


def come(connections, address):
    peer = Peer(address)
    peer.is_open = connections.admit(peer, address)
    return peer


def test_one_address_has_its_share_and_a_proxy_all():
    connections = budget()
    assert [come(connections, "a").is_open for _ in range(EACH + 2)] == [True] * EACH + [False] * 2
    assert come(connections, "b").is_open
    assert [come(connections, PROXY).is_open for _ in range(MOST)].count(True) == MOST - EACH - 1


def test_the_longest_silence_gives_way_and_one_that_was_answered_last():
    clock = Clock()
    connections = budget(clock)
    first, second, *others = [come(connections, "a") for _ in range(EACH)]
    first.was_answered = True
    clock.now += IDLE_SECONDS + 1
    connections.touch(others[0], "a")
    assert come(connections, "a").is_open
    assert (first.is_open, second.is_open, others[0].is_open) == (True, False, True)


def test_who_has_most_gives_way_to_others():
    clock = Clock()
    connections = budget(clock)
    greedy = [come(connections, "greedy") for _ in range(EACH)]
    modest = [come(connections, f"m{n}") for n in range(MOST - EACH)]
    clock.now += IDLE_SECONDS + 1
    assert come(connections, "new").is_open
    assert [each.is_open for each in modest] == [True] * len(modest)
    assert sum(each.is_open for each in greedy) == EACH - 1


def test_what_is_answered_or_has_just_come_stays():
    clock = Clock()
    connections = budget(clock)
    busy = [come(connections, "a") for _ in range(EACH)]
    assert not come(connections, "a").is_open
    for each in busy:
        each.is_waiting = False
    clock.now += 100
    assert not come(connections, "a").is_open
    assert all(each.is_open for each in busy)


class Coming(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.clock = Clock()
        self.connections = budget(self.clock)
        self.peers = []

    @rule(address=st.sampled_from(["a", "b", "c", "2001:db8::1", "2001:db8::2", PROXY]))
    def come(self, address):
        self.peers.append(come(self.connections, address))

    @rule(place=st.integers(0, 30), is_waiting=st.booleans())
    def speak(self, place, is_waiting):
        if place < len(self.peers):
            self.peers[place].is_waiting = is_waiting
            self.connections.touch(self.peers[place], self.peers[place].address)

    @rule(place=st.integers(0, 30))
    def remove(self, place):
        if place < len(self.peers):
            peer = self.peers.pop(place)
            self.connections.remove(peer, peer.address)

    @rule(seconds=st.sampled_from([0.5, 3.0]))
    def wait(self, seconds):
        self.clock.now += seconds

    @invariant()
    def what_is_counted_is_what_is_open(self):
        standing = [each for each in self.peers if each.is_open]
        assert len(self.connections) == len(standing) <= MOST
        for address in ("a", "b", "c"):
            assert sum(each.address == address for each in standing) <= EACH
        assert sum(each.address.startswith("2001") for each in standing) <= EACH


TestComing = Coming.TestCase
TestComing.settings = settings(max_examples=50, stateful_step_count=40)
