"""Canaries, random values where secrets lie, and a hunter: what hostile model code does to find and carry them off.

The hunter knows where each canary lies, which no real attacker does. What it finds it writes wherever it can write, and
says that it was there: a hunt that never ran proves nothing.
"""

import base64
import json
import os
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex

HUNTER = """
def hunt(phase):
    import glob, json, os, pathlib, re, socket, sys, tempfile
    asked = json.loads(ASKED)
    loot, canary = {}, re.compile("canary-[0-9a-f]{24}")
    for path in asked["paths"]:
        for at in (path, "/proc/1/root" + path, "/proc/self/root" + path):
            try:
                loot[at] = open(at, "rb").read().decode("latin-1")
            except OSError:
                pass
    for path in ["/proc/self/environ", *glob.glob("/proc/[0-9]*/environ"), *glob.glob("/proc/[0-9]*/cmdline")]:
        try:
            text = open(path, "rb").read().decode("latin-1")
            loot.update({path: text} if canary.search(text) else {})
        except OSError:
            pass
    for folder in asked["folders"]:
        for path in glob.glob(folder + "/**", recursive=True):
            try:
                text = open(path, "rb").read().decode("latin-1")
                loot.update({path: text} if canary.search(text) else {})
            except OSError:
                pass
    for port in asked["ports"]:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=2) as there:
                loot[f"port {port}"] = there.recv(100).decode()
        except OSError:
            pass
    for name, value in os.environ.items():
        loot.update({name: value} if canary.search(value) else {})
    written = []
    for path in asked["out_of_reach"]:
        try:
            open(path, "ab").close()
            written.append(path)
        except OSError:
            pass
    word = json.dumps({"hunted": phase, "uid": os.getuid(), "found": sorted(loot), "written": written, "loot": loot})
    print(word, file=sys.stderr, flush=True)
    places = (os.getcwd(), os.environ["HOME"], tempfile.gettempdir(), os.environ.get("GANGLINE_OUT"))
    for place in filter(None, places):
        try:
            pathlib.Path(place, f"hunted-{phase}.json").write_text(word)
        except OSError:
            pass
    return word
"""


class Canaries:
    """Those of one machine: a user's home, a site, another project, another process, a service."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.values: list[str] = []
        self.paths: list[Path] = []
        self.out_of_reach: list[Path] = []
        self.ports: list[int] = []

    def new(self) -> str:
        self.values.append(f"canary-{token_hex(12)}")
        return self.values[-1]

    def plant(self, path: Path, *, mode: int = 0o600) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.new())
        path.chmod(mode)
        self.paths.append(path)
        return path

    def hunter(self) -> str:
        """Source of `hunt(phase)`."""
        asked = {
            "paths": [str(each) for each in self.paths], "folders": sorted({str(each.parent) for each in self.paths}),
            "ports": self.ports, "out_of_reach": [str(each) for each in self.out_of_reach],
        }  # fmt: skip
        return f"ASKED = {json.dumps(asked)!r}\n{HUNTER}"

    @contextmanager
    def process(self):
        """Another process of this user has one in its environment."""
        with subprocess.Popen(["sleep", "600"], env={**os.environ, "TOKEN": self.new()}) as other:
            try:
                yield
            finally:
                other.kill()

    @contextmanager
    def service(self):
        """A service on loopback tells one to everybody."""
        value = self.new().encode()
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.ports.append(server.getsockname()[1])

            def serve() -> None:
                while True:
                    try:
                        with server.accept()[0] as there:
                            there.sendall(value)
                    except OSError:
                        return

            threading.Thread(target=serve, daemon=True).start()
            yield
            server.shutdown(socket.SHUT_RDWR)

    def carried_off(self, *folders: Path) -> list[str]:
        """Files in which one stands, however it is spelled, but for where it was planted."""
        spelled = [
            spelling
            for value in (each.encode() for each in self.values)
            for spelling in (value, value.hex().encode(), base64.b64encode(value).rstrip(b"="))
        ]
        return [
            str(path)
            for folder in folders
            for path in sorted(folder.rglob("*"))
            if path.is_file() and not path.is_symlink() and path not in self.paths
            if any(each in path.read_bytes() for each in spelled)
        ]


def hunts(text: str) -> list[dict]:
    """What hunters said in a log."""
    lines = (line[line.index('{"hunted"') :] for line in text.splitlines() if '{"hunted"' in line)
    return [json.loads(line) for line in lines]


def plain_python() -> str:
    """An interpreter like this one that every user of the machine may start; empty: there is none."""
    path = Path(f"/usr/bin/python3.{sys.version_info.minor}")
    return str(path) if path.exists() else ""
