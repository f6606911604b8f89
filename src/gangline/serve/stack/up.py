"""Bringing a stack up: ports settled, files written, what is not running started, each waited for until it answers."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from gangline.launch.local.targets import is_free
from gangline.serve.stack import files, process
from gangline.serve.stack.definitions import monitoring_folder
from gangline.serve.stack.health import wait_ready
from gangline.serve.stack.home import Home, State
from gangline.serve.stack.members import BUCKET, S3, Member, choose_s3, members
from gangline.serve.stack.ports import settle_ports

READY_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """What became of a server, for a table or a program."""

    name: str
    kind: str
    state: Literal["started", "running", "absent", "failed", "stopped", "gone"]
    url: str = ""
    text: str = ""
    """What to install, what it said last, or where its key is."""


def bring_up(
    home: Home, *, s3: S3 | None = None, drive: bool = False, say: Callable[[Row], None] = lambda _row: None
) -> list[Row]:
    """Start what is installed and does not run.

    Args:
        s3: Kind of S3 server; None: the one used before, else what is installed.
        drive: The service runs new commits of the repository by itself.
        say: Gets each row as soon as it is known.

    Raises:
        CapacityError: Another `up` is at it, or no port is free.
        ConfigError: The remembered state is damaged; or there is no line to drive.
    """
    home.make()
    with home.held():
        state, kind = home.read(), choose_s3(s3, home.read().s3)
        servers = prepare(home, state, kind, drive=drive)
        rows: list[Row] = []
        for member in servers:
            rows.append(_settle(home, state, member))
            say(rows[-1])
    return rows


def prepare(home: Home, state: State, s3: S3, *, drive: bool) -> list[Member]:
    """Ports, folders and the files that servers read; nothing is started. The caller holds the stack."""
    state.s3 = s3
    state.running = {name: each for name, each in state.running.items() if process.is_running(each)}
    state.ports = settle_ports(state.ports, kept=set(state.running))
    home.write(state)
    servers = members(home, state.ports, s3=s3)
    for folder in (f"{s3}/{BUCKET}", "prometheus", "grafana", "service"):
        home.data(folder).mkdir(parents=True, exist_ok=True)
    home.targets.mkdir(exist_ok=True)
    files.write_prometheus(home, state.ports, monitoring_folder())
    files.write_boards(home, state.ports, monitoring_folder())
    there = {each.name for each in servers if each.program is not None}
    files.write_site(home, state.ports, there=there, drive=drive)
    return servers


def _settle(home: Home, state: State, member: Member) -> Row:
    if member.program is None:
        return _row(member, "absent", member.install)
    running = state.running.get(member.name)
    if running and running.asked != member.asked:
        process.stop(state.running.pop(member.name))
    elif running:
        row = _await(home, state, member, "running")
        if member.name in state.running:
            return row
    if not is_free(port := urlsplit(member.url).port or 0):
        return _row(member, "failed", f"another program took port {port} just now; gangline up again takes the next")
    try:
        state.running[member.name] = process.start(
            [member.program, *member.arguments], _environ(member.environ), log=home.log(member.name), asked=member.asked
        )
    except OSError as error:
        return _row(member, "failed", f"{member.program} does not start: {error}")
    home.write(state)
    return _await(home, state, member, "started")


def _await(home: Home, state: State, member: Member, well: Literal["started", "running"]) -> Row:
    """Wait until it answers; one that died is no longer among the running."""
    mine = state.running[member.name]
    ready = wait_ready(
        member.ready, answers=member.answers, seconds=READY_SECONDS, alive=lambda: process.is_running(mine)
    )
    if ready:
        return _row(member, well, member.note)
    said = process.last_words(home.log(member.name))
    if process.is_running(mine):
        return _row(member, "failed", f"does not answer within {READY_SECONDS:.0f} s: {said}")
    del state.running[member.name]
    home.write(state)
    return _row(member, "failed", f"ended at once: {said}")


def _row(member: Member, state: Literal["started", "running", "absent", "failed"], text: str) -> Row:
    there = state in ("started", "running")
    return Row(name=member.name, kind=member.kind, state=state, url=member.url if there else "", text=text)


def _environ(own: Mapping[str, str]) -> dict[str, str]:
    """What a program needs of ours, and its own words; no other secret of the caller reaches it."""
    kept = (
        "PATH",
        "HOME",
        "LANG",
        "LC_ALL",
        "TMPDIR",
        "VIRTUAL_ENV",
        "PYTHONPATH",
        "XDG_CACHE_HOME",
        "OMP_NUM_THREADS",
    )
    return {**{name: os.environ[name] for name in kept if name in os.environ}, **own}


def board_url(rows: list[Row]) -> str:
    """Address of the boards; empty where Grafana does not serve them."""
    grafana = next((row.url for row in rows if row.name == "grafana"), "")
    return f"{grafana}/dashboards/f/gangline" if grafana else ""
