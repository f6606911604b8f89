"""A fabric in a box: a network namespace for each host, leaf and spine, a bridge in each leaf, links of limited rate.

It lives in namespaces that end with the process that builds it: `python -m tests.fabric.box.scenarios NAME` is started
by `unshare --net --mount`. A leaf joins its hosts by a bridge and sends what leaves the group over its uplinks to the
spine, by a hash of addresses and ports (`hash`) or by the target's number (`pinned`).
"""

import ctypes
import json
import os
import signal
import subprocess
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

_NEW_NETWORK = 0x40000000  # CLONE_NEWNET
_END_WITH_PARENT = 1  # PR_SET_PDEATHSIG
SPINE = "spine"


class FabricBox:
    """Groups of hosts with the same number of uplinks each; hosts are called `a0`, `a1`, `b0` and so on."""

    def __init__(self, *, groups: int, hosts: int, uplinks: int, megabits: int, policy: str = "hash") -> None:
        """Build it: `megabits` is the rate of every link, in each direction."""
        self.groups = {chr(ord("a") + group): group for group in range(groups)}
        self.hosts = {f"{name}{at}": (group, at) for name, group in self.groups.items() for at in range(hosts)}
        self._uplinks, self._rate = uplinks, f"{megabits}mbit"
        subprocess.run(["mount", "-t", "tmpfs", "none", "/run/netns"], check=True)
        self._namespace(SPINE)
        for name, group in self.groups.items():
            self._leaf(name, group)
        for name in self.groups:
            self._routes(name, policy)

    def address(self, host: str) -> str:
        """IPv4 address of a host."""
        group, at = self.hosts[host]
        return f"10.{group}.0.{at + 1}"

    def group_of(self) -> dict[str, str]:
        """Group by host."""
        return {host: host[0] for host in self.hosts}

    def start(self, place: str, work: Callable[[], Any]) -> "Work":
        """Do `work` in a process of its own in the network of `place`: a host, a leaf or the spine."""
        return Work(place, work)

    def sent_bytes(self, group: str) -> list[int]:
        """That left the group over each of its uplinks so far."""
        counted = json.loads(_run("ip", "-n", f"leaf-{group}", "-s", "-j", "link"))
        found = {each["ifname"]: each["stats64"]["tx"]["bytes"] for each in counted}
        return [found[f"up{link}"] for link in range(self._uplinks)]

    def cut_host(self, host: str) -> None:
        """Take the link of a host down, at its leaf."""
        _run("ip", "-n", f"leaf-{host[0]}", "link", "set", f"to-{host}", "down")

    def cut_group(self, group: str) -> None:
        """Take all uplinks of a leaf down."""
        for link in range(self._uplinks):
            _run("ip", "-n", f"leaf-{group}", "link", "set", f"up{link}", "down")

    def lose(self, group: str, link: int, percent: int) -> None:
        """Let one uplink of a leaf lose packets of both directions, and look healthy."""
        chance = f"numgen random mod 100 < {percent} " if percent < 100 else ""
        rules = "".join(
            f"chain {name} {{ type filter hook forward priority {place}; {way} up{link} {chance}drop; }}; "
            for place, (name, way) in enumerate((("out", "oifname"), ("in", "iifname")))
        )
        _run("ip", "netns", "exec", f"leaf-{group}", "nft", f"table inet grey {{ {rules}}}")

    def _namespace(self, name: str) -> None:
        _run("ip", "netns", "add", name)
        _run("ip", "-n", name, "link", "set", "lo", "up")
        settings = ("ip_forward=1", "fib_multipath_hash_policy=1", "conf.all.rp_filter=0", "conf.default.rp_filter=0")
        _run("ip", "netns", "exec", name, "sysctl", "-qw", *(f"net.ipv4.{each}" for each in settings))

    def _leaf(self, name: str, group: int) -> None:
        leaf = f"leaf-{name}"
        self._namespace(leaf)
        _run("ip", "-n", leaf, "link", "add", "bridge", "type", "bridge")
        _run("ip", "-n", leaf, "address", "add", f"10.{group}.0.254/24", "dev", "bridge")
        _run("ip", "-n", leaf, "link", "set", "bridge", "up")
        for host in (each for each in self.hosts if each[0] == name):
            self._namespace(host)
            self._link((host, "eth0"), (leaf, f"to-{host}"))
            _run("ip", "-n", leaf, "link", "set", f"to-{host}", "master", "bridge")
            _run("ip", "-n", host, "address", "add", f"{self.address(host)}/24", "dev", "eth0")
            _run("ip", "-n", host, "route", "add", "default", "via", f"10.{group}.0.254")
        for link in range(self._uplinks):
            self._link((leaf, f"up{link}"), (SPINE, f"{name}-{link}"))
            _run("ip", "-n", leaf, "address", "add", f"10.{100 + group}.{link}.1/30", "dev", f"up{link}")
            _run("ip", "-n", SPINE, "address", "add", f"10.{100 + group}.{link}.2/30", "dev", f"{name}-{link}")

    def _link(self, *ends: tuple[str, str]) -> None:
        (place, name), (other, peer) = ends
        _run("ip", "link", "add", name, "netns", place, "type", "veth", "peer", "name", peer, "netns", other)
        for where, each in ends:
            _run("ip", "-n", where, "link", "set", each, "up")
            shaped = ("root", "tbf", "rate", self._rate, "burst", "32kb", "latency", "100ms")
            _run("tc", "-n", where, "qdisc", "add", "dev", each, *shaped)

    def _routes(self, name: str, policy: str) -> None:
        """To other groups from the leaf, and to this one from the spine."""
        group, links = self.groups[name], range(self._uplinks)
        up = [f"10.{100 + group}.{link}.2" for link in links]
        down = [f"10.{100 + group}.{link}.1" for link in links]
        if policy == "hash":
            for where, target, ways in ((f"leaf-{name}", "10.0.0.0/8", up), (SPINE, f"10.{group}.0.0/24", down)):
                _run("ip", "-n", where, "route", "add", target, *(w for way in ways for w in ("nexthop", "via", way)))
            return
        for host, (other, at) in self.hosts.items():
            link = at % self._uplinks
            where, way = (SPINE, down[link]) if other == group else (f"leaf-{name}", up[link])
            _run("ip", "-n", where, "route", "add", self.address(host), "via", way)


class Work:
    """A forked process in another network namespace, and what its function returns, as JSON."""

    def __init__(self, place: str, work: Callable[[], Any]) -> None:
        self._read, write = os.pipe()
        self._process = os.fork()
        if self._process:
            os.close(write)
            return
        code = 1
        try:
            ctypes.CDLL(None).prctl(_END_WITH_PARENT, signal.SIGKILL)
            _enter(place if place == SPINE or place[1:].isdigit() else f"leaf-{place}")
            with os.fdopen(write, "w") as answer:
                json.dump(work(), answer)
            code = 0
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(code)  # not what the parent would do at its end

    def result(self) -> Any:
        """Wait for it.

        Raises:
            RuntimeError: It failed; its error is on stderr.
        """
        with os.fdopen(self._read) as answer:
            text = answer.read()
        if os.waitpid(self._process, 0)[1]:
            raise RuntimeError("a process in the box failed")
        return json.loads(text)

    def kill(self) -> None:
        """End one that waits for ever."""
        os.kill(self._process, 9)
        os.waitpid(self._process, 0)
        os.close(self._read)


def _enter(namespace: str) -> None:
    with Path("/run/netns", namespace).open() as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), _NEW_NETWORK):
            raise OSError(ctypes.get_errno(), f"no network namespace {namespace}")


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
