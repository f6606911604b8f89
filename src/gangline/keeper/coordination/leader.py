"""Coordinator of node 0: leads the keepers of all other nodes.

It starts a generation when all nodes are present, ends it on all nodes when it ends on one, and decides when all have
reported. It waits a limited time for a lost node while the others keep their places. A leader that replaces another
continues above every generation that its followers have seen: stores refuse writes of older ones.
"""

import resource
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

from gangline.errors import SIGTERM_CODE, CapacityError, IntegrityError
from gangline.keeper.coordination.channel import Channel, ChannelClosed
from gangline.keeper.coordination.generations import GenerationController, GenerationEnd
from gangline.keeper.coordination.listener import ControlListener
from gangline.keeper.coordination.members import Members, Peer
from gangline.keeper.coordination.protocol import GenerationStart
from gangline.keeper.coordination.reports import NodeReport
from gangline.keeper.coordination.restart_policy import RestartDecision, stopped_before_start
from gangline.keeper.ipc.environment import KeeperEnvironment
from gangline.keeper.ranks.generation_result import GenerationResult, Halt, LostNode
from gangline.keeper.ranks.rank_exit import RankExit
from gangline.keeper.ranks.stop_request import StopRequest
from gangline.spec.codec import from_plain

FAREWELL_SECONDS = 10.0


class Leader:
    def __init__(
        self, environment: KeeperEnvironment, course: GenerationController, *, key: Callable[[], bytes]
    ) -> None:
        """Raises `CapacityError` where the control port is in use."""
        self._env, self._course = environment, course
        host = "127.0.0.1" if environment.on_loopback else ""
        _allow_handles(environment.num_nodes + 256)
        self._door = ControlListener(
            host, environment.control_port, gang=environment.gang, num_nodes=environment.num_nodes, key=key
        )
        self._roll = Members(on_gone=self._miss)
        self._runs = False
        self._led = False
        """It has started a generation: what followers know they know from it."""
        self._own: StopRequest | None = None
        self._order: StopRequest | None = None
        self._ending = GenerationEnd()
        """Of the generation that runs, or ran last."""
        self._lost: LostNode | None = None
        self._fatal: RestartDecision | None = None
        """A follower cannot go on at all."""
        self._closes = False
        self._pinged = 0.0

    # -- what the keeper asks

    @property
    def outcome(self) -> GenerationResult | None:
        return self._course.outcome

    def next(self, last: NodeReport | None) -> GenerationStart | RestartDecision:
        if last is not None:
            verdict = self._settle(last)
            if not verdict.restart:
                return verdict
            self._course.go_on(verdict)
        return self._gather() or self._start()

    def order(self, own: StopRequest | None) -> StopRequest | None:
        if own is not None and self._own is None:
            self._own = own
            self._obey(own)
        goes_well = self._runs and self._order is None and not self._ending.is_called
        if goes_well and (resize := self._course.resize(self._present())):
            self._obey(resize)
        return self._order

    def halt(self) -> Halt | None:
        return self._ending.halt

    def failing(self, *, secondary: bool, hangs: bool) -> None:
        self._call_halt(Halt(hangs=hangs), doubt=secondary)

    def handles(self) -> list[int]:
        return [*self._door.handles(), *self._roll.handles()]

    def replace(self, dead: Sequence[RankExit], *, oom_kills: int) -> GenerationStart | None:
        """Nodes start and end a generation together: over several of them all ranks start anew."""
        del dead, oom_kills
        return None

    def pump(self) -> None:
        now = time.monotonic()
        for node, channel in self._door.pump():
            self._admit(node, channel)
        for node, peer, message in self._roll.hear():
            try:
                self._take(node, peer, message)
            except IntegrityError as error:
                self._roll.lose(node, str(error))
        if halt := self._ending.news():
            self._roll.tell_all({"halt": self._course.generation, "hangs": halt.hangs})
        if now - self._pinged >= self._env.ping_seconds:
            self._pinged = now
            self._roll.tell_all({"ping": True})
            self._roll.lose_silent(self._env.silence_seconds)

    def close(self, verdict: RestartDecision) -> None:
        """Followers hear the verdict; of a leader that leaves alone they hear that it does, and wait for the next."""
        self._closes = True
        leaves = verdict.exit_code == SIGTERM_CODE
        self._roll.tell_all({"leaving": True} if leaves else {"end": asdict(verdict)})
        patience = time.monotonic() + FAREWELL_SECONDS
        while len(self._roll) and time.monotonic() < patience:
            self._course.keeper.wait(0.1)
        self._door.close()
        self._roll.close()

    # -- a generation, from all being there to all having ended

    def _gather(self) -> RestartDecision | None:
        """Wait until all nodes are there; a verdict where that does not come about."""
        reason, patience = self._course.reason, time.monotonic() + self._env.rejoin_seconds
        because = f"{reason}; " if reason else ""
        while True:
            if verdict := self._stopped():
                return verdict
            missing = [node for node in range(1, self._env.num_nodes) if not self._is_there(node)]
            late = time.monotonic() > patience
            if not missing or ((self._led or late) and self._course.fits(self._present())):
                return None
            if late:
                words = f"{because}{_nodes(missing)} did not come within {self._env.rejoin_seconds:g} s"
                return RestartDecision(
                    restart=False, exit_code=CapacityError.exit_code, retry=CapacityError.retry, reason=words
                )
            self._course.keeper.waits(f"{because}waits for {_nodes(missing)} of {self._env.num_nodes}")
            self._course.keeper.wait(0.5)

    def _stopped(self) -> RestartDecision | None:
        """There is no use in waiting for anybody."""
        order = self._course.keeper.own_stop_request() or self._order
        return self._fatal or (stopped_before_start(order, self._course.generation) if order else None)

    def _is_there(self, node: int) -> bool:
        peer = self._roll.get(node)
        return peer is not None and peer.stays

    def _present(self) -> list[int]:
        """Nodes that are there to stay, this one first."""
        return [0, *(node for node in range(1, self._env.num_nodes) if self._is_there(node))]

    def _start(self) -> GenerationStart:
        start = self._course.start(self._present())
        assert start.shape is not None, "a course gives its generations one"
        self._led = True
        self._runs, self._ending, self._lost = True, GenerationEnd(), None
        for node, peer in self._roll.items():
            peer.plays, peer.report = node in start.shape.nodes, None
        self._roll.tell_all({"start": asdict(start), "spent": self._course.budget.spent})
        return start

    def _settle(self, last: NodeReport) -> RestartDecision:
        """Judge, once every node that is still there has reported."""
        while waiting := self._roll.nodes(lambda peer: peer.plays and peer.report is None):
            self.order(self._course.keeper.own_stop_request())
            if self._ending.is_late:
                for node in waiting:
                    self._roll.lose(node, "did not end its ranks in time")
                break
            self._course.keeper.wait(0.5)
        self._runs = False
        reports = [last, *(peer.report for peer in self._roll if peer.report is not None)]
        verdict = self._course.judge(reports, order=self._order, lost=self._lost)
        return self._fatal or self._without_asked(verdict)

    def _without_asked(self, verdict: RestartDecision) -> RestartDecision:
        """Where a single node was asked to stop, the others go on with the one that takes its place."""
        order, self._order = self._order, None
        if order is None or order.resize or order.exit_code != SIGTERM_CODE:
            return verdict
        if verdict.exit_code == 0 or self._own is not None:
            return verdict
        return RestartDecision(restart=True, exit_code=verdict.exit_code, retry="free", reason=verdict.reason)

    # -- what followers say

    def _admit(self, node: int, channel: Channel) -> None:
        """The keeper of a node that has one already has to wait until that one is gone."""
        if self._roll.get(node) is not None:
            with suppress(ChannelClosed):
                channel.send({"busy": f"has a keeper of node {node} already"})
            channel.close()
            return
        self._roll.add(node, channel)
        self._course.keeper.event("node_joined", node=node)

    def _take(self, node: int, peer: Peer, message: dict[str, Any]) -> None:
        if "here" in message:
            peer.known = True
            self._welcome(message["here"])
        elif "failing" in message and self._is_now(message):
            self._call_halt(Halt(hangs=bool(message.get("hangs"))), doubt=bool(message.get("secondary")))
        elif "ended" in message and self._is_now(message["ended"]):
            peer.report = NodeReport.from_plain(message["ended"])
        elif "fatal" in message:
            self._fatal = self._fatal or from_plain(RestartDecision, message["fatal"])
            self._call_halt(Halt(), doubt=False)
        elif "order" in message:
            order = from_plain(StopRequest, message["order"])
            peer.asked = order.exit_code == SIGTERM_CODE
            order = replace(order, reason=f"node {node} was {order.reason}") if peer.asked else order
            if self._runs or not peer.asked:
                self._obey(order)

    def _welcome(self, known: dict[str, Any]) -> None:
        """What a follower has seen of this gang: a new leader goes on from there."""
        course, seen = self._course, known.get("generation")
        if self._led or not isinstance(seen, int) or seen < 0:
            return
        course.generation = max(course.generation, seen + 1)
        if int(known.get("restarts", 0)) < course.restarts:  # another one told it already
            return
        orphaned = bool(known.get("orphaned"))
        course.restarts = int(known.get("restarts", 0)) + 1
        course.budget.spent = max(course.budget.spent, int(known.get("spent", 0)) + orphaned)
        course.reason = "the keeper of node 0 was replaced"
        course.keeper.event("restart", reason=course.reason, charged=orphaned, generation=course.generation)

    def _is_now(self, message: Any) -> bool:
        return self._runs and isinstance(message, dict) and message.get("generation") == self._course.generation

    def _miss(self, node: int, peer: Peer, reason: str) -> None:
        """A node is gone; where it still had ranks, the generation is over."""
        if not self._closes:
            self._course.keeper.event("node_lost", node=node, reason=reason, asked=peer.asked)
        if not self._runs or not peer.plays or peer.report is not None:
            return
        if self._lost is None and not peer.asked:
            words = f"node {node} went away: its keeper {reason}"
            self._lost = LostNode(rank=node * self._env.local_world_size, reason=words, mono=time.monotonic())
        self._call_halt(Halt(), doubt=False)

    # -- what all have to do

    def _obey(self, order: StopRequest) -> None:
        """Every node stops; an order that is final stands above that to a single node."""
        if self._order is not None and (self._order.exit_code != SIGTERM_CODE or order.exit_code == SIGTERM_CODE):
            return
        self._order = order
        if self._runs:
            self._ending.allow(self._env.grace_seconds)
            self._roll.tell_all({"stop": asdict(order), "generation": self._course.generation})

    def _call_halt(self, halt: Halt, *, doubt: bool) -> None:
        if self._runs:
            self._ending.call(halt, doubt=doubt)


def _nodes(nodes: list[int]) -> str:
    shown = ", ".join(map(str, nodes[:8])) + (", ..." if len(nodes) > 8 else "")
    return f"node{'s' if len(nodes) > 1 else ''} {shown}"


def _allow_handles(wanted: int) -> None:
    """As many open files as there are nodes, as far as the hard limit goes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))
