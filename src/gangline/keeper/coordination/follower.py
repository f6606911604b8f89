"""Coordinator of every node but 0: follows the leader, the keeper of node 0."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from gangline.errors import CapacityError
from gangline.keeper.coordination.channel import Channel, ChannelClosed
from gangline.keeper.coordination.listener import connect_to_leader
from gangline.keeper.coordination.protocol import CoordinationHost, GenerationStart
from gangline.keeper.coordination.reports import NodeReport, join_reports
from gangline.keeper.coordination.restart_policy import RestartDecision, stopped_before_start, stopped_on_request
from gangline.keeper.ipc.environment import KeeperEnvironment
from gangline.keeper.ranks.generation_result import GenerationResult, Halt
from gangline.keeper.ranks.rank_exit import RankExit
from gangline.keeper.ranks.stop_request import StopRequest
from gangline.spec.codec import from_plain

CALL_SECONDS = 5.0
"""For one try to reach the leader; nothing else is done meanwhile."""
AGAIN_SECONDS = 0.5


class Follower:
    outcome: GenerationResult | None = None
    """What happened elsewhere is the leader's to tell."""

    def __init__(self, environment: KeeperEnvironment, keeper: CoordinationHost, *, key: Callable[[], bytes]) -> None:
        self._env, self._keeper, self._key = environment, keeper, key
        self._link: Channel | None = None
        self._heard = self._pinged = 0.0
        self._alone_since = time.monotonic()
        self._trouble = "was not looked for yet"
        self._orphaned = False
        """The leader went away without a word."""
        self._spent = 0
        self._start: GenerationStart | None = None
        """The last one; it stands while its generation runs."""
        self._fresh: GenerationStart | None = None
        self._own: StopRequest | None = None
        self._order: StopRequest | None = None
        self._halt: Halt | None = None
        self._end: RestartDecision | None = None

    # -- what the keeper asks

    def next(self, last: NodeReport | None) -> GenerationStart | RestartDecision:
        if last is not None:
            self._tell({"ended": last.to_plain()})
        while self._fresh is None:
            if verdict := self._verdict(last):
                return verdict
            if self._link is None:
                self._seek()
            if self._fresh is None:
                self._keeper.waits(self._place_text() if self._link and self._start else self._words())
                self._keeper.wait(AGAIN_SECONDS)
        start, self._fresh = self._fresh, None
        self._start, self._halt, self._order = start, None, None
        return start

    def order(self, own: StopRequest | None) -> StopRequest | None:
        if own is not None and self._own is None:
            self._own = own
            self._tell({"order": asdict(own)})
        return self._own or self._order

    def halt(self) -> Halt | None:
        if self._link is None or self._end is not None or self._fresh is not None:
            return Halt()
        return self._halt

    def failing(self, *, secondary: bool, hangs: bool) -> None:
        self._tell({"failing": True, "generation": self._generation, "secondary": secondary, "hangs": hangs})

    def handles(self) -> list[int]:
        return [self._link.fileno()] if self._link else []

    def replace(self, dead: Sequence[RankExit], *, oom_kills: int) -> GenerationStart | None:
        """Nodes start and end a generation together: over several of them all ranks start anew."""
        del dead, oom_kills
        return None

    def pump(self) -> None:
        if self._link is None:
            return
        now = time.monotonic()
        try:
            self._heard = now if (messages := self._link.receive()) else self._heard
            for message in messages:
                self._take(message)
        except ChannelClosed as error:
            self._lose(str(error))
            return
        if self._link is not None and now - self._heard > self._env.silence_seconds:
            self._lose(f"said nothing for {now - self._heard:.0f} s")
        elif now - self._pinged >= self._env.ping_seconds:
            self._pinged = now
            self._tell({"ping": True})

    def close(self, verdict: RestartDecision) -> None:
        if verdict.exit_code and self._end is None and self._own is None:
            self._tell({"fatal": asdict(verdict)})
        if self._link is not None:
            self._link.close()

    # -- in between

    @property
    def _generation(self) -> int:
        return self._start.generation if self._start else -1

    def _verdict(self, last: NodeReport | None) -> RestartDecision | None:
        """Where it ends for this node; None: it goes on."""
        if self._end is not None:
            return self._end
        if (order := self.order(self._keeper.own_stop_request())) is not None and order is self._own:
            if last is None or not last.ordered:
                return stopped_before_start(order, self._generation + 1)
            return stopped_on_request(join_reports([last], began=0.0, order=order).outcome)
        if self._link is None and time.monotonic() - self._alone_since > self._env.rejoin_seconds:
            return RestartDecision(
                restart=False,
                exit_code=CapacityError.exit_code,
                retry=CapacityError.retry,
                reason=f"node 0 was not there for {self._env.rejoin_seconds:g} s: {self._words()}",
            )
        return None

    def _seek(self) -> None:
        """One try to reach the leader."""
        address = (self._env.master_addr, self._env.control_port)
        try:
            self._link = connect_to_leader(
                address, gang=self._env.gang, node=self._env.node_rank, key=self._key(), seconds=CALL_SECONDS
            )
        except ChannelClosed as error:
            self._trouble = str(error)
            return
        self._heard = self._pinged = time.monotonic()
        known = {"generation": self._generation, "spent": self._spent, "orphaned": self._orphaned}
        self._tell({"here": known | {"restarts": self._start.restarts if self._start else 0}})

    def _take(self, message: dict[str, Any]) -> None:
        if "start" in message:
            self._on_start(from_plain(GenerationStart, message["start"]), spent=int(message["spent"]))
        elif "halt" in message and message["halt"] == self._generation:
            self._halt = Halt(hangs=bool(message["hangs"]))
        elif "stop" in message and message["generation"] == self._generation:
            self._order = from_plain(StopRequest, message["stop"])
        elif "end" in message:
            self._end = from_plain(RestartDecision, message["end"])
        elif "leaving" in message:
            self._lose("was asked to stop")
            self._orphaned = False
        elif "busy" in message:
            self._hang_up(str(message["busy"]))

    def _on_start(self, start: GenerationStart, *, spent: int) -> None:
        """A generation of other nodes is only known of: this one holds its place."""
        if start.shape is None or start.shape.place(self._env.node_rank) is not None:
            self._fresh = start
        else:
            self._start = start
        self._spent, self._orphaned = spent, False

    def _lose(self, reason: str) -> None:
        if self._link is not None:
            self._hang_up(reason)
            self._alone_since = time.monotonic()
            self._orphaned = self._start is not None
            self._keeper.event("leader_lost", reason=reason)

    def _hang_up(self, reason: str) -> None:
        if self._link is not None:
            self._link.close()
        self._link, self._trouble = None, reason

    def _tell(self, message: dict[str, Any]) -> None:
        if self._link is None:
            return
        try:
            self._link.send(message)
        except ChannelClosed as error:
            self._lose(str(error))

    def _place_text(self) -> str:
        start = self._start
        assert start is not None, "asked once it was heard"
        if start.shape is None or start.shape.place(self._env.node_rank) is not None:
            return start.reason
        return f"holds its place: {start.shape.world_size} ranks run on other nodes"

    def _words(self) -> str:
        return f"the keeper of node 0 at {self._env.master_addr}:{self._env.control_port} {self._trouble}"
