"""C7: orders that are started, stopped, woken and taken over by services in any order have one legal end each."""

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from tests.contracts.database.rows import order

from gangline.serve.database.open import open_database

pytestmark = pytest.mark.row("C7", full="100,000 rule steps")
FINAL = {"done", "dropped", "quarantined"}
LEASE = 60.0
services = st.sampled_from(["one", "two", "three"])
others = st.none() | services
"""Who speaks of an order: None for whoever claimed it."""
refs = st.sampled_from(["refs/heads/a", "refs/heads/b"])


class Racing(RuleBasedStateMachine):
    """Three services over one queue, whose clock only goes forward."""

    claimed = Bundle("claimed")

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.database = open_database(str(Path(self.folder.name) / "gangline.db"))
        self.now = 1000.0
        self.leases = {}
        """Order to (holder, end), as the machine believes."""
        self.ended = {}

    def teardown(self):
        self.database.close()
        self.folder.cleanup()

    @rule(ref=refs, named=st.booleans())
    def ask(self, ref, named):
        self.database.orders.add(order(ref, commit="c" * 40 if named else None), now=self.now)

    @rule(ref=refs, delivery=st.integers(0, 5))
    def deliver(self, ref, delivery):
        self.database.deliveries.take_in(
            forge="ours", delivery=f"d{delivery}", body_digest=f"b{delivery}", order=order(ref), now=self.now
        )

    @rule(target=claimed, holder=services)
    def claim(self, holder):
        found = self.database.orders.claim(holder=holder, now=self.now, lease_seconds=LEASE)
        if found is not None:
            _, end = self.leases.get(found.id, ("", 0.0))
            assert end <= self.now, "an order was taken from a living service"
            self.leases[found.id] = (holder, self.now + LEASE)
        return found, holder

    @rule(held=claimed, other=others, state=st.sampled_from(["done", "parked", "quarantined", "queued", "driving"]))
    def settle(self, held, other, state):
        found, holder = held[0], other or held[1]
        if found is None:
            return
        wanted = replace(found, state=state, run=f"alpha-{found.id}", not_before=self.now + 30)
        did = self.database.orders.settle(wanted, holder=holder)
        mine = self.leases.get(found.id, ("", 0.0))[0] == holder
        assert mine or not did, "an order was settled by who has it no more"
        if did and state != "driving":
            del self.leases[found.id]

    @rule(held=claimed, other=others)
    def renew(self, held, other):
        found, holder = held[0], other or held[1]
        if found is None:
            return
        did = self.database.orders.renew(found.id, holder=holder, now=self.now, lease_seconds=LEASE)
        assert not did or self.leases.get(found.id, ("", 0.0))[0] == holder, "a lease was renewed by who has it no more"
        if did:
            self.leases[found.id] = (holder, self.now + LEASE)

    @rule(held=claimed)
    def wake(self, held):
        if held[0] is not None:
            self.database.orders.unpark(f"alpha-{held[0].id}", now=self.now)

    @rule(ref=refs)
    def drop(self, ref):
        for each in self.database.orders.drop(project="alpha", ref=ref, note="gone"):
            self._taken_from_its_driver(each)

    @rule(held=claimed)
    def withdraw(self, held):
        if held[0] is None:
            return
        before = self.database.orders.get(held[0].id)
        after = self.database.orders.withdraw(held[0].id, note="gone")
        if after != before:
            assert (before.state not in {"done", "dropped"}, after.state) == (True, "dropped")
            self.ended.pop(after.id, None)  # a quarantined one ends once more: by a word of somebody who looked at it
            self._taken_from_its_driver(after)

    @rule(seconds=st.sampled_from([1.0, 31.0, 61.0]))
    def wait(self, seconds):
        self.now += seconds

    @rule()
    def open_again(self):
        self.database.close()
        self.database = open_database(str(Path(self.folder.name) / "gangline.db"))

    @invariant()
    def who_has_ended_never_moves_again(self):
        for each in self.database.orders.list(states=sorted(FINAL), projects=None, limit=1000):
            assert self.ended.setdefault(each.id, each) == each
        assert sum(self.database.orders.counts().get(state, 0) for state in FINAL) == len(self.ended)

    @invariant()
    def whoever_is_driven_has_a_driver(self):
        driven = {each.id for each in self.database.orders.list(states=["driving"], projects=None, limit=1000)}
        assert driven == set(self.leases) - self._taken_back()

    def _taken_from_its_driver(self, dropped):
        """Legal while no run has begun for it: the driver is told at its next word."""
        _, end = self.leases.pop(dropped.id, ("", 0.0))
        assert dropped.run is None or end <= self.now, "an order whose run is driven was dropped"

    def _taken_back(self):
        """Orders whose lease ran out and that a claim has returned to the queue meanwhile."""
        return {
            number for number, (_, end) in self.leases.items()
            if end <= self.now and self.database.orders.get(number).state != "driving"
        }  # fmt: skip


@pytest.mark.parametrize("examples", [10, pytest.param(2000, marks=pytest.mark.slow)])
def test_orders_have_one_legal_end(examples):
    """What fails is told as it was found: to shorten it takes minutes of writing to a disk."""
    phases = [Phase.reuse, Phase.generate]
    run_state_machine_as_test(
        Racing, settings=settings(max_examples=examples, stateful_step_count=50, deadline=None, phases=phases)
    )
