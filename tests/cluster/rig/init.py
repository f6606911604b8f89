"""First process of the cluster's namespaces: lays out mounts and network, then starts the daemons and keeps them up.

When it ends, the kernel ends all of them. Run by `host`, as root, in new mount, pid, net, uts and ipc namespaces."""

import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from tests.cluster.rig import answers, daemons, places
from tests.cluster.rig.supervise import Supervisor

_START_SECONDS = 120.0


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    _lay_out_mounts()
    _lay_out_network()
    supervisor = Supervisor(places.logs(), adopts=True)
    supervisor.start(daemons.first())
    deadline = time.monotonic() + _START_SECONDS
    supervisor.watch(until=lambda: answers.ready() or time.monotonic() > deadline)
    supervisor.start(daemons.second())
    supervisor.watch(until=lambda: False)
    return 0


def _lay_out_mounts() -> None:
    """Folders that daemons write to by fixed names are the cluster's own, and its mounts stay in here."""
    _call("mount", "--make-rprivate", "/")
    _call("mount", "--make-rshared", "/")
    for folder in places.COVERED:
        _call("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", folder)
    for folder in ("/run/lock", "/var/log/containers"):
        Path(folder).mkdir()
    # The host's resolver is out of reach in here, and waiting for it takes a client half a minute.
    _call("mount", "--bind", f"{places.configuration()}/resolv.inside", "/etc/resolv.conf")


def _lay_out_network() -> None:
    """Loopback and one pair of ends, both in here: there is no way out."""
    socket.sethostname(places.NODE)
    _call("ip", "link", "set", "lo", "up")
    _call("ip", "link", "add", "node0", "type", "veth", "peer", "name", "node0p")
    _call("ip", "address", "add", f"{places.NODE_ADDRESS}/24", "dev", "node0")
    for end in ("node0p", "node0"):
        _call("ip", "link", "set", end, "up")
    _call("ip", "route", "add", "default", "dev", "node0")
    settings = {"ip_forward": "1", "conf/all/rp_filter": "0"}
    for name, value in settings.items():
        (Path("/proc/sys/net/ipv4") / name).write_text(value)
    bridge = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")
    if bridge.is_file():
        bridge.write_text("1")


def _call(*command: str) -> None:
    subprocess.run(command, check=True)


if __name__ == "__main__":
    sys.exit(main())
