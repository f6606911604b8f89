"""Coordinator of every node except node 0: follows the leader, which is the keeper of node 0."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from gangline.errors import CapacityError
from gangline.keeper.coordination.channel import Channel, ChannelClosed
from gangline.keeper.coordination.control_port import find_port
from gangline.keeper.coordination.listener import connect_to_leader
from gangline.keeper.coordination.protocol import CoordinationHost, GenerationStart
from gangline.keeper.coordination.reports import NodeReport, join_reports
from gangline.keeper.coordination.restart_policy import RestartDecision, stopped_before_start, stopped_on_request
from gangline.keeper.ipc.environment import KeeperEnvironment
from gangline.keeper.ranks.generation_result import GenerationResult, Halt
from gangline.keeper.ranks.rank_exit import RankExit
from gangline.keeper.ranks.stop_request import StopRequest
from gangline.spec.codec import from_plain

CONNECT_SECONDS = 5.0
"""Limit of one try to reach the leader; the keeper does nothing else meanwhile."""
RETRY_SECONDS = 0.5


class Follower:
    """Coordinator that follows the leader."""

    outcome: GenerationResult | None = None
    """Always None: the leader reports how a generation ended on all nodes."""

    def __init__(self, environment: KeeperEnvironment, keeper: CoordinationHost, *, key: Callable[[], bytes]) -> None:
        self._env, self._keeper, self._key = environment, keeper, key
        self._channel: Channel | None = None
        self._last_seen = self._pinged = 0.0
        self._alone_since = time.monotonic()
        self._problem = "has not been contacted yet"
        self._orphaned = False
        """The leader was lost without a farewell."""
        self._spent = 0
        self._start: GenerationStart | None = None
        """Start of the current or last generation."""
        self._next_start: GenerationStart | None = None
        self._own_stop: StopRequest | None = None
        self._leader_stop: StopRequest | None = None
        self._halt: Halt | None = None
        self._decision: RestartDecision | None = None

    # -- called by the keeper

    def next(self, last: NodeReport | None) -> GenerationStart | RestartDecision:
        if last is not None:
            self._send({"ended": last.to_plain()})
        while self._next_start is None:
            if decision := self._decide(last):
                return decision
            if self._channel is None:
                self._connect()
            if self._next_start is None:
                self._keeper.set_waiting(self._idle_text() if self._channel and self._start else self._problem_text())
                self._keeper.wait(RETRY_SECONDS)
        start, self._next_start = self._next_start, None
        self._start, self._halt, self._leader_stop = start, None, None
        return start

    def exchange_stop(self, own: StopRequest | None) -> StopRequest | None:
        if own is not None and self._own_stop is None:
            self._own_stop = own
            self._send({"order": asdict(own)})
        return self._own_stop or self._leader_stop

    def remote_halt(self) -> Halt | None:
        if self._channel is None or self._decision is not None or self._next_start is not None:
            return Halt()
        return self._halt

    def report_failure(self, *, secondary: bool, hangs: bool) -> None:
        self._send({"failing": True, "generation": self._generation, "secondary": secondary, "hangs": hangs})

    def handles(self) -> list[int]:
        return [self._channel.fileno()] if self._channel else []

    def replace(self, dead: Sequence[RankExit], *, oom_kills: int) -> GenerationStart | None:
        """None: with several nodes a lost rank restarts all ranks, as nodes start and end a generation together."""
        del dead, oom_kills
        return None

    def poll(self) -> None:
        if self._channel is None:
            return
        now = time.monotonic()
        try:
            self._last_seen = now if (messages := self._channel.receive()) else self._last_seen
            for message in messages:
                self._handle(message)
        except ChannelClosed as error:
            self._lose_leader(str(error))
            return
        if self._channel is not None and now - self._last_seen > self._env.silence_seconds:
            self._lose_leader(f"sent nothing for {now - self._last_seen:.0f} s")
        elif now - self._pinged >= self._env.ping_seconds:
            self._pinged = now
            self._send({"ping": True})

    def close(self, decision: RestartDecision) -> None:
        if decision.exit_code and self._decision is None and self._own_stop is None:
            self._send({"fatal": asdict(decision)})
        if self._channel is not None:
            self._channel.close()

    # -- messages of the leader

    @property
    def _generation(self) -> int:
        return self._start.generation if self._start else -1

    def _decide(self, last: NodeReport | None) -> RestartDecision | None:
        """How the gang ends for this node; None: it continues."""
        if self._decision is not None:
            return self._decision
        stop = self.exchange_stop(self._keeper.own_stop_request())
        if stop is not None and stop is self._own_stop:
            if last is None or not last.stopped:
                return stopped_before_start(stop, self._generation + 1)
            return stopped_on_request(join_reports([last], began=0.0, stop=stop).outcome)
        if self._channel is None and time.monotonic() - self._alone_since > self._env.rejoin_seconds:
            return RestartDecision(
                restart=False,
                exit_code=CapacityError.exit_code,
                retry=CapacityError.retry,
                reason=f"node 0 was lost for {self._env.rejoin_seconds:g} s: {self._problem_text()}",
            )
        return None

    def _connect(self) -> None:
        """One try to reach the leader."""
        port = find_port(self._env)
        if port is None:
            self._problem = "does not listen yet"
            return
        try:
            self._channel = connect_to_leader(
                (self._env.master_addr, port),
                gang=self._env.gang,
                node=self._env.node_rank,
                key=self._key(),
                seconds=CONNECT_SECONDS,
            )
        except ChannelClosed as error:
            self._problem = str(error)
            return
        self._last_seen = self._pinged = time.monotonic()
        known = {"generation": self._generation, "spent": self._spent, "orphaned": self._orphaned}
        self._send({"here": known | {"restarts": self._start.restarts if self._start else 0}})

    def _handle(self, message: dict[str, Any]) -> None:
        if "start" in message:
            self._on_start(from_plain(GenerationStart, message["start"]), spent=int(message["spent"]))
        elif "halt" in message and message["halt"] == self._generation:
            self._halt = Halt(hangs=bool(message["hangs"]))
        elif "stop" in message and message["generation"] == self._generation:
            self._leader_stop = from_plain(StopRequest, message["stop"])
        elif "end" in message:
            self._decision = from_plain(RestartDecision, message["end"])
        elif "leaving" in message:
            self._lose_leader("was asked to stop")
            self._orphaned = False
        elif "busy" in message:
            self._disconnect(str(message["busy"]))

    def _on_start(self, start: GenerationStart, *, spent: int) -> None:
        """Take part in the generation, or stay idle if this node is not among its nodes."""
        if start.shape is None or start.shape.place(self._env.node_rank) is not None:
            self._next_start = start
        else:
            self._start = start
        self._spent, self._orphaned = spent, False

    def _lose_leader(self, reason: str) -> None:
        if self._channel is not None:
            self._disconnect(reason)
            self._alone_since = time.monotonic()
            self._orphaned = self._start is not None
            self._keeper.event("leader_lost", reason=reason)

    def _disconnect(self, reason: str) -> None:
        if self._channel is not None:
            self._channel.close()
        self._channel, self._problem = None, reason

    def _send(self, message: dict[str, Any]) -> None:
        if self._channel is None:
            return
        try:
            self._channel.send(message)
        except ChannelClosed as error:
            self._lose_leader(str(error))

    def _idle_text(self) -> str:
        start = self._start
        assert start is not None, "called after a start"
        if start.shape is None or start.shape.place(self._env.node_rank) is not None:
            return start.reason
        return f"idle: {start.shape.world_size} ranks run on other nodes"

    def _problem_text(self) -> str:
        port = find_port(self._env)
        return f"the keeper of node 0 at {self._env.master_addr}{f':{port}' if port else ''} {self._problem}"
