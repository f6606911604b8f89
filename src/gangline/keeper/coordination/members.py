"""Followers that are connected to the leader: their messages, and which of them are lost."""

import select
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from gangline.keeper.coordination.channel import Channel, ChannelClosed
from gangline.keeper.coordination.reports import NodeReport


@dataclass
class Peer:
    channel: Channel
    heard: float
    known: bool = False
    """It has said what it has seen of this gang; before that it is not here."""
    plays: bool = False
    """It takes part in the generation that runs; else it came too late for it."""
    report: NodeReport | None = None
    """Of that generation, once it is over there."""
    asked: bool = False
    """Its pod was asked to stop: it leaves once its ranks have."""

    @property
    def stays(self) -> bool:
        return self.known and not self.asked


class Members:
    def __init__(self, *, on_gone: Callable[[int, Peer, str], None]) -> None:
        """`on_gone` is told of each node that went away, and why, when it is no longer on the roll."""
        self._peers: dict[int, Peer] = {}
        self._nodes: dict[int, int] = {}
        self._ears = select.epoll()  # one handle for all: thousands of followers cost nothing while they are silent
        self._on_gone = on_gone

    def __len__(self) -> int:
        return len(self._peers)

    def __iter__(self) -> Iterator[Peer]:
        return iter(self._peers.values())

    def items(self) -> Iterator[tuple[int, Peer]]:
        return iter(self._peers.items())

    def get(self, node: int) -> Peer | None:
        return self._peers.get(node)

    def nodes(self, wanted: Callable[[Peer], bool]) -> list[int]:
        return [node for node, peer in self._peers.items() if wanted(peer)]

    def add(self, node: int, channel: Channel) -> None:
        self._peers[node] = Peer(channel, heard=time.monotonic())
        self._nodes[channel.fileno()] = node
        self._ears.register(channel.fileno(), select.EPOLLIN)

    def lose(self, node: int, reason: str) -> None:
        peer = self._peers.pop(node)
        self._ears.unregister(peer.channel.fileno())
        del self._nodes[peer.channel.fileno()]
        peer.channel.close()
        self._on_gone(node, peer, reason)

    def lose_silent(self, seconds: float) -> None:
        """Whoever has said nothing for so long is gone."""
        now = time.monotonic()
        for node, peer in list(self._peers.items()):
            if now - peer.heard > seconds:
                self.lose(node, f"said nothing for {now - peer.heard:.0f} s")

    def handles(self) -> list[int]:
        return [self._ears.fileno()]

    def hear(self) -> Iterator[tuple[int, Peer, dict[str, Any]]]:
        """Messages that are there; never waits."""
        for handle, _ in self._ears.poll(0):
            node = self._nodes.get(handle)
            peer = self._peers.get(node) if node is not None else None
            if node is None or peer is None:  # lost meanwhile
                continue
            try:
                messages = peer.channel.receive()
            except ChannelClosed as error:
                self.lose(node, str(error))
                continue
            peer.heard = time.monotonic() if messages else peer.heard
            for message in messages:
                yield node, peer, message

    def tell_all(self, message: dict[str, Any]) -> None:
        for node, peer in list(self._peers.items()):
            try:
                peer.channel.send(message)
            except ChannelClosed as error:
                self.lose(node, str(error))

    def close(self) -> None:
        self._ears.close()
        for peer in self._peers.values():
            peer.channel.close()
