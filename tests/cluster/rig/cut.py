"""Pods that are cut off: the node drops what one of them sends to a port.

The bridge of this cluster enforces no NetworkPolicy, so the node does what one without that egress would: packets are
dropped, of open connections, too, and nothing answers."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.cluster.rig.inside import enter, output


@contextmanager
def cut_off(address: str, port: int) -> Iterator[None]:
    """While the block runs no packet of the pod at `address` reaches `port`, of the node or of another pod."""
    rule = ("-s", address, "-p", "tcp", "--dport", str(port), "-j", "DROP")
    for chain in ("INPUT", "FORWARD"):
        output(enter("iptables", "--wait", "-I", chain, "1", *rule))
    try:
        yield
    finally:
        for chain in ("INPUT", "FORWARD"):
            output(enter("iptables", "--wait", "-D", chain, *rule))
