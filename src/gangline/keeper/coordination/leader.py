"""Coordinator of node 0: leads the keepers of all other nodes.

It starts a generation when all nodes are present, ends it on all nodes when it ends on one, and decides when all have
reported. It waits a limited time for a lost node while the others stay connected. A leader that replaces another
continues above every generation that its followers have seen: stores refuse writes of older ones.
"""

import resource
import select
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from gangline.errors import SIGTERM_CODE, CapacityError, IntegrityError
from gangline.keeper.coordination.channel import Channel, ChannelClosed
from gangline.keeper.coordination.control_port import publish_port
from gangline.keeper.coordination.generations import GenerationController, GenerationEnd
from gangline.keeper.coordination.listener import ControlListener
from gangline.keeper.coordination.protocol import GenerationStart
from gangline.keeper.coordination.reports import NodeReport
from gangline.keeper.coordination.restart_policy import RestartDecision, replaced_node, stopped_before_start
from gangline.keeper.ipc.environment import KeeperEnvironment
from gangline.keeper.ranks.generation_result import GenerationResult, Halt, LostNode
from gangline.keeper.ranks.rank_exit import RankExit
from gangline.keeper.ranks.stop_request import StopRequest
from gangline.spec.codec import from_plain


@dataclass
class Peer:
    """A connected follower."""

    channel: Channel
    last_seen: float
    known: bool = False
    """It has reported what it has seen of this gang; before that it does not count as present."""
    takes_part: bool = False
    """It takes part in the current generation; a node that came later does not."""
    report: NodeReport | None = None
    """Report of that generation, once it ended there."""
    stop_asked: bool = False
    """Its pod was asked to stop: it leaves after its ranks."""

    @property
    def remains(self) -> bool:
        """It stays for the next generation: it is present, and its pod is not being stopped."""
        return self.known and not self.stop_asked


class Members:
    """Connected followers by node rank."""

    def __init__(self, *, on_lost: Callable[[int, Peer, str], None]) -> None:
        """`on_lost` is called for each lost node with the reason, after its removal."""
        self._peers: dict[int, Peer] = {}
        self._nodes: dict[int, int] = {}
        self._epoll = select.epoll()  # one descriptor for thousands of silent followers
        self._on_lost = on_lost

    def __len__(self) -> int:
        return len(self._peers)

    def __iter__(self) -> Iterator[Peer]:
        return iter(self._peers.values())

    def items(self) -> Iterator[tuple[int, Peer]]:
        return iter(self._peers.items())

    def get(self, node: int) -> Peer | None:
        return self._peers.get(node)

    def nodes(self, wanted: Callable[[Peer], bool]) -> list[int]:
        """Node ranks of the followers for which `wanted` is true."""
        return [node for node, peer in self._peers.items() if wanted(peer)]

    def add(self, node: int, channel: Channel) -> None:
        """Take in a follower that has connected."""
        self._peers[node] = Peer(channel, last_seen=time.monotonic())
        self._nodes[channel.fileno()] = node
        self._epoll.register(channel.fileno(), select.EPOLLIN)

    def lose(self, node: int, reason: str) -> None:
        """Remove a follower, close its channel and call `on_lost`."""
        peer = self._peers.pop(node)
        self._epoll.unregister(peer.channel.fileno())
        del self._nodes[peer.channel.fileno()]
        peer.channel.close()
        self._on_lost(node, peer, reason)

    def lose_silent(self, seconds: float) -> None:
        """Drop followers that sent nothing for so long."""
        now = time.monotonic()
        for node, peer in list(self._peers.items()):
            if now - peer.last_seen > seconds:
                self.lose(node, f"sent nothing for {now - peer.last_seen:.0f} s")

    def handles(self) -> list[int]:
        return [self._epoll.fileno()]

    def receive(self) -> Iterator[tuple[int, Peer, dict[str, Any]]]:
        """Messages that have arrived; never waits."""
        for handle, _ in self._epoll.poll(0):
            node = self._nodes.get(handle)
            peer = self._peers.get(node) if node is not None else None
            if node is None or peer is None:  # lost meanwhile
                continue
            try:
                messages = peer.channel.receive()
            except ChannelClosed as error:
                self.lose(node, str(error))
                continue
            peer.last_seen = time.monotonic() if messages else peer.last_seen
            for message in messages:
                yield node, peer, message

    def broadcast(self, message: dict[str, Any]) -> None:
        """Send to all followers; those that do not accept it are lost."""
        for node, peer in list(self._peers.items()):
            try:
                peer.channel.send(message)
            except ChannelClosed as error:
                self.lose(node, str(error))

    def close(self) -> None:
        self._epoll.close()
        for peer in self._peers.values():
            peer.channel.close()


FAREWELL_SECONDS = 10.0


class Leader:
    """Coordinator that leads the gang."""

    def __init__(
        self, environment: KeeperEnvironment, controller: GenerationController, *, key: Callable[[], bytes]
    ) -> None:
        """Raises `CapacityError` if the control port is in use."""
        self._env, self._controller = environment, controller
        host = "127.0.0.1" if environment.on_loopback else ""
        _raise_file_limit(environment.num_nodes + 256)
        self._listener = ControlListener(
            host, environment.control_port, gang=environment.gang, num_nodes=environment.num_nodes, key=key
        )
        publish_port(environment, self._listener.port)
        self._members = Members(on_lost=self._on_node_lost)
        self._is_running = False
        self._has_started = False
        """This leader has started a generation, so its followers know no more than it does."""
        self._own_stop: StopRequest | None = None
        self._stop: StopRequest | None = None
        self._ending = GenerationEnd()
        """End of the current or last generation."""
        self._lost: LostNode | None = None
        self._fatal: RestartDecision | None = None
        """Decision of a follower that cannot continue."""
        self._is_closing = False
        self._pinged = 0.0

    # -- called by the keeper

    @property
    def outcome(self) -> GenerationResult | None:
        return self._controller.outcome

    def next(self, last: NodeReport | None) -> GenerationStart | RestartDecision:
        if last is not None:
            decision = self._decide_after_reports(last)
            if not decision.restart:
                return decision
            self._controller.advance(decision)
        return self._wait_for_nodes() or self._start()

    def exchange_stop(self, own: StopRequest | None) -> StopRequest | None:
        if own is not None and self._own_stop is None:
            self._own_stop = own
            self._announce_stop(own)
        undisturbed = self._is_running and self._stop is None and not self._ending.is_announced
        if undisturbed and (resize := self._controller.resize(self._present())):
            self._announce_stop(resize)
        return self._stop

    def remote_halt(self) -> Halt | None:
        return self._ending.halt

    def report_failure(self, *, secondary: bool, hangs: bool) -> None:
        self._announce_halt(Halt(hangs=hangs), secondary=secondary)

    def handles(self) -> list[int]:
        return [*self._listener.handles(), *self._members.handles()]

    def replace(self, dead: Sequence[RankExit], *, oom_kills: int) -> GenerationStart | None:
        """Nodes start and end a generation together: with several nodes all ranks are started again."""
        del dead, oom_kills
        return None

    def poll(self) -> None:
        now = time.monotonic()
        for node, channel in self._listener.poll():
            self._admit(node, channel)
        for node, peer, message in self._members.receive():
            try:
                self._handle(node, peer, message)
            except IntegrityError as error:
                self._members.lose(node, str(error))
        if halt := self._ending.take_halt():
            self._members.broadcast({"halt": self._controller.generation, "hangs": halt.hangs})
        if now - self._pinged >= self._env.ping_seconds:
            self._pinged = now
            self._members.broadcast({"ping": True})
            self._members.lose_silent(self._env.silence_seconds)

    def close(self, decision: RestartDecision) -> None:
        """Send the decision to all followers; if only this leader leaves, they wait for the next one."""
        self._is_closing = True
        leaves = decision.exit_code == SIGTERM_CODE
        self._members.broadcast({"leaving": True} if leaves else {"end": asdict(decision)})
        deadline = time.monotonic() + FAREWELL_SECONDS
        while len(self._members) and time.monotonic() < deadline:
            self._controller.keeper.wait(0.1)
        self._listener.close()
        self._members.close()

    # -- a generation, from the presence of all nodes to the reports of all nodes

    def _wait_for_nodes(self) -> RestartDecision | None:
        """Wait until all nodes are present; returns a decision if the generation cannot start."""
        reason, deadline = self._controller.reason, time.monotonic() + self._env.rejoin_seconds
        because = f"{reason}; " if reason else ""
        while True:
            if decision := self._stopped():
                return decision
            missing = [node for node in range(1, self._env.num_nodes) if not self._is_present(node)]
            late = time.monotonic() > deadline
            if not missing or ((self._has_started or late) and self._controller.fits(self._present())):
                return None
            if late:
                reason = f"{because}{_nodes(missing)} did not connect within {self._env.rejoin_seconds:g} s"
                return RestartDecision(
                    restart=False, exit_code=CapacityError.exit_code, retry=CapacityError.retry, reason=reason
                )
            self._controller.keeper.set_waiting(f"{because}waiting for {_nodes(missing)} of {self._env.num_nodes}")
            self._controller.keeper.wait(0.5)

    def _stopped(self) -> RestartDecision | None:
        """Decision that ends the wait for nodes; None: keep waiting."""
        stop = self._controller.keeper.own_stop_request() or self._stop
        return self._fatal or (stopped_before_start(stop, self._controller.generation) if stop else None)

    def _is_present(self, node: int) -> bool:
        peer = self._members.get(node)
        return peer is not None and peer.remains

    def _present(self) -> list[int]:
        """Nodes that are present and not about to leave, this one first."""
        return [0, *(node for node in range(1, self._env.num_nodes) if self._is_present(node))]

    def _start(self) -> GenerationStart:
        start = self._controller.start(self._present())
        assert start.shape is not None, "the controller sets it"
        self._has_started = True
        self._is_running, self._ending, self._lost = True, GenerationEnd(), None
        for node, peer in self._members.items():
            peer.takes_part, peer.report = node in start.shape.nodes, None
        self._members.broadcast({"start": asdict(start), "spent": self._controller.budget.spent})
        return start

    def _decide_after_reports(self, last: NodeReport) -> RestartDecision:
        """Decide after every node that is still connected has reported."""
        while waiting := self._members.nodes(lambda peer: peer.takes_part and peer.report is None):
            self.exchange_stop(self._controller.keeper.own_stop_request())
            if self._ending.is_late:
                for node in waiting:
                    self._members.lose(node, "did not end its ranks in time")
                break
            self._controller.keeper.wait(0.5)
        self._is_running = False
        reports = [last, *(peer.report for peer in self._members if peer.report is not None)]
        decision = self._controller.decide(reports, stop=self._stop, lost=self._lost)
        return self._fatal or self._replace_stopped_node(decision)

    def _replace_stopped_node(self, decision: RestartDecision) -> RestartDecision:
        """Restart if only one node was asked to stop: the others continue with the node that replaces it."""
        stop, self._stop = self._stop, None
        if stop is None or stop.resize or stop.exit_code != SIGTERM_CODE:
            return decision
        if decision.exit_code == 0 or self._own_stop is not None:
            return decision
        step = self._controller.outcome.step if self._controller.outcome else None
        return replaced_node(decision, step, self._controller.budget, now=time.monotonic())

    # -- messages of followers

    def _admit(self, node: int, channel: Channel) -> None:
        """Register a follower; a second keeper of the same node has to wait until the first one is gone."""
        if self._members.get(node) is not None:
            with suppress(ChannelClosed):
                channel.send({"busy": f"already has a keeper of node {node}"})
            channel.close()
            return
        self._members.add(node, channel)
        self._controller.keeper.event("node_joined", node=node)

    def _handle(self, node: int, peer: Peer, message: dict[str, Any]) -> None:
        if "here" in message:
            peer.known = True
            self._adopt_progress(message["here"])
        elif "failing" in message and self._is_current(message):
            self._announce_halt(Halt(hangs=bool(message.get("hangs"))), secondary=bool(message.get("secondary")))
        elif "ended" in message and self._is_current(message["ended"]):
            peer.report = NodeReport.from_plain(message["ended"])
        elif "fatal" in message:
            self._fatal = self._fatal or from_plain(RestartDecision, message["fatal"])
            self._announce_halt(Halt(), secondary=False)
        elif "order" in message:
            stop = from_plain(StopRequest, message["order"])
            peer.stop_asked = stop.exit_code == SIGTERM_CODE
            stop = replace(stop, reason=f"node {node} was {stop.reason}") if peer.stop_asked else stop
            if self._is_running or not peer.stop_asked:
                self._announce_stop(stop)

    def _adopt_progress(self, known: dict[str, Any]) -> None:
        """Continue from what a follower has seen of this gang, if this leader replaces another one."""
        controller, seen = self._controller, known.get("generation")
        if self._has_started or not isinstance(seen, int) or seen < 0:
            return
        controller.generation = max(controller.generation, seen + 1)
        if int(known.get("restarts", 0)) < controller.restarts:  # another follower reported it already
            return
        orphaned = bool(known.get("orphaned"))
        controller.restarts = int(known.get("restarts", 0)) + 1
        controller.budget.spent = max(controller.budget.spent, int(known.get("spent", 0)) + orphaned)
        controller.reason = "the keeper of node 0 was replaced"
        controller.keeper.event("restart", reason=controller.reason, charged=orphaned, generation=controller.generation)

    def _is_current(self, message: Any) -> bool:
        generation = self._controller.generation
        return self._is_running and isinstance(message, dict) and message.get("generation") == generation

    def _on_node_lost(self, node: int, peer: Peer, reason: str) -> None:
        """A node was lost; if it still had ranks, the generation ends."""
        if not self._is_closing:
            self._controller.keeper.event("node_lost", node=node, reason=reason, asked=peer.stop_asked)
        if not self._is_running or not peer.takes_part or peer.report is not None:
            return
        if self._lost is None and not peer.stop_asked:
            text = f"node {node} was lost: its keeper {reason}"
            self._lost = LostNode(rank=node * self._env.local_world_size, reason=text, mono=time.monotonic())
        self._announce_halt(Halt(), secondary=False)

    # -- announcements to all nodes

    def _announce_stop(self, stop: StopRequest) -> None:
        """Stop all nodes; a final request takes precedence over one to a single node."""
        if self._stop is not None and (self._stop.exit_code != SIGTERM_CODE or stop.exit_code == SIGTERM_CODE):
            return
        self._stop = stop
        if self._is_running:
            self._ending.extend(self._env.grace_seconds)
            self._members.broadcast({"stop": asdict(stop), "generation": self._controller.generation})

    def _announce_halt(self, halt: Halt, *, secondary: bool) -> None:
        if self._is_running:
            self._ending.announce(halt, secondary=secondary)


def _nodes(nodes: list[int]) -> str:
    shown = ", ".join(map(str, nodes[:8])) + (", ..." if len(nodes) > 8 else "")
    return f"node{'s' if len(nodes) > 1 else ''} {shown}"


def _raise_file_limit(wanted: int) -> None:
    """Raise the limit of open files to `wanted`, as far as the hard limit allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))
