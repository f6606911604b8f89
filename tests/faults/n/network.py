"""A network of its own for a program: loopback alone, whose packets can be dropped, one way or both."""

import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
RULES = "table inet cut { chain out { type filter hook output priority 0; }; }"


def run_alone(program, *arguments, timeout):
    """Run a program of this folder in a network namespace; its output. Skips where there can be none."""
    missing = [each for each in ("unshare", "nft", "ip") if shutil.which(each) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"no network to cut: wanted root, unshare, nft and ip; missing: {', '.join(missing) or 'root'}")
    command = ["unshare", "--net", sys.executable, str(Path(__file__).with_name(program)), *map(str, arguments)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def bring_up():
    """Inside: loopback answers, nothing is cut."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    subprocess.run(["nft", RULES], check=True)


WAYS = {"to": ("daddr", "dport"), "from": ("saddr", "sport")}


@contextmanager
def cut(way, address, port):
    """Drop what goes `to` a server, comes `from` it, or `both`; its own end of a connection hears nothing of it."""
    for each in WAYS if way == "both" else [way]:
        ip, tcp = WAYS[each]
        subprocess.run(["nft", f"add rule inet cut out ip {ip} {address} tcp {tcp} {port} drop"], check=True)
    try:
        yield
    finally:
        subprocess.run(["nft", "flush", "chain", "inet", "cut", "out"], check=True)
