"""Two placers, one in the middle of the other's step: nothing is given away twice, no part of a gang starts."""

from datetime import timedelta

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule
from tests.cluster.fake.api import FakeApi
from tests.launch.kubernetes.cluster_stand import Killed, Stand, demand_no_server_twice, watch_over

from gangline.launch.kubernetes.placement.placer import Placer

SERVERS = ["a", "b", "c", "d"]


class Placing(RuleBasedStateMachine):
    gangs = Bundle("gangs")

    def __init__(self):
        super().__init__()
        self.stand = Stand({"a": 1, "b": 1, "c": 2, "d": 1})
        self.apis = [self.stand.placing, FakeApi(server=self.stand.server)]
        self.placers = [Placer(api, holder=str(number)) for number, api in enumerate(self.apis)]
        self.number = 0
        for api in self.apis:
            watch_over(self.stand, api)

    @rule(target=gangs, num_pods=st.integers(1, 4), priority=st.sampled_from(["low", "normal", "high"]))
    def submit(self, num_pods, priority):
        self.number += 1
        self.stand.submit(f"g{self.number}", num_pods, priority=priority)
        return f"g{self.number}"

    @rule(who=st.integers(0, 1), seconds=st.sampled_from([1, 1, 1, 20, 61]))
    def step(self, who, seconds):
        self.stand.turn(seconds=seconds, placer=self.placers[who])

    @rule(
        who=st.integers(0, 1),
        at=st.integers(1, 14),
        meanwhile=st.lists(st.sampled_from(["step", "late step", "start", "move", "schedule"]), min_size=1, max_size=4),
    )
    def much_happens_within_a_step(self, who, at, meanwhile):
        """Before the `at`-th call of this placer's step the other has its own, and the cluster moves."""
        seen = []

        def others_first(_, proceed):
            seen.append(1)
            if len(seen) == at:
                for what in meanwhile:
                    self.happens(what, self.placers[1 - who])
            return proceed()

        self.apis[who].hooks.append(others_first)
        self.placers[who].step(self.stand.now)
        self.apis[who].hooks.pop()

    def happens(self, what, placer):
        if what == "start":
            self.number += 1
            self.stand.submit(f"g{self.number}", 2, priority="high")
            for _ in range(2):
                placer.step(self.stand.now)
                self.stand.move()
        elif what == "move":
            self.stand.move()
        elif what == "schedule":
            self.stand.schedule()
        else:
            self.stand.now += timedelta(seconds=61 if what == "late step" else 0)
            placer.step(self.stand.now)

    @rule(number=st.sampled_from([1, 99]))
    def pods_are_made(self, number):
        self.stand.most_pods = number

    @rule(who=st.integers(0, 1), at=st.integers(1, 12))
    def die_within_a_step(self, who, at):
        seen = []

        def dies(_, proceed):
            seen.append(1)
            if len(seen) == at:
                raise Killed
            return proceed()

        self.apis[who].hooks.append(dies)
        try:
            self.stand.turn(placer=self.placers[who])
        except Killed:
            self.placers[who] = Placer(self.apis[who], holder=f"{who} again")
        self.apis[who].hooks.pop()

    @rule(gang=consumes(gangs), how=st.sampled_from(["end", "delete", "cancel"]))
    def finish(self, gang, how):
        path = f"/apis/batch/v1/namespaces/gangs/jobs/{gang}"
        if how == "end":
            self.stand.end(gang)
        elif how == "delete":
            self.stand.api.delete(path)
        else:
            self.stand.api.patch(path, {"metadata": {"annotations": {"gangline/cancelled": "enough"}}})

    @rule(gang=gangs, data=st.data())
    def lose_a_pod(self, gang, data):
        if bound := self.stand.bound(gang):
            self.stand.lose(gang, data.draw(st.sampled_from(sorted(bound))))

    @rule(server=st.sampled_from(SERVERS), how=st.sampled_from(["taint", "heal", "refuse", "accept"]))
    def trouble(self, server, how):
        if how in ("taint", "heal"):
            self.stand.taint(server, "broken" if how == "taint" else None)
        elif how == "refuse":
            self.stand.refusing[server] = "no"
        else:
            self.stand.refusing.pop(server, None)

    @rule(first=st.booleans())
    def move(self, first):
        if first:
            self.stand.schedule()
        self.stand.move()

    @invariant()
    def no_server_is_given_twice(self):
        demand_no_server_twice(self.stand)


Placing.TestCase.settings = settings(
    max_examples=25, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
TestPlacing = Placing.TestCase


@pytest.mark.slow
@pytest.mark.row("C6", full="15,000 steps of two placers")
class TestPlacingLonger(Placing.TestCase):
    settings = settings(
        max_examples=300, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
    )
