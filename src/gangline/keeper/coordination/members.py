"""Members of a gang as its leader sees them: connected followers, their messages, and which of them are lost."""

import select
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from gangline.keeper.coordination.channel import Channel, ChannelClosed
from gangline.keeper.coordination.reports import NodeReport


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
