"""Starting and stopping the stack: ports, files, processes, readiness; `down` stops what `up` started, last first.

Server processes start detached, are found by pid and start time, and are ready once they answer over HTTP.
"""

import os
import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from gangline import procfs
from gangline.errors import ConfigError, StorageError
from gangline.http.retry import Deadline, RequestFailed
from gangline.launch.local.scrape_targets import is_free
from gangline.stack.home import RunningServer, StackHome, StackState
from gangline.stack.servers import (
    BUCKET,
    S3,
    StackServer,
    choose_s3,
    monitoring_folder,
    settle_ports,
    stack_servers,
    write_boards,
    write_prometheus,
    write_site,
)

READY_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerStatus:
    """What became of a server, for a table or a program."""

    name: str
    kind: str
    state: Literal["started", "running", "absent", "failed", "stopped", "gone"]
    url: str = ""
    text: str = ""
    """What to install, what it said last, or where its key is."""


def bring_up(
    home: StackHome,
    *,
    environ: Mapping[str, str],
    s3: S3 | None = None,
    drive: bool = False,
    say: Callable[[ServerStatus], None] = lambda _row: None,
) -> list[ServerStatus]:
    """Start what is installed and does not run.

    Args:
        environ: Of the caller: where programs are found, and what they get of it.
        s3: Kind of S3 server; None: the one used before, else what is installed.
        drive: The service runs new commits of the repository by itself.
        say: Gets each row as soon as it is known.

    Raises:
        CapacityError: Another `up` is at it, or no port is free.
        ConfigError: The remembered state is damaged; or there is no line to drive.
    """
    home.make()
    with home.held():
        state, kind = home.read(), choose_s3(s3, home.read().s3, environ=environ)
        servers = _prepare(home, state, kind, environ=environ, drive=drive)
        rows: list[ServerStatus] = []
        for member in servers:
            rows.append(_settle(home, state, member, environ))
            say(rows[-1])
    return rows


def _prepare(
    home: StackHome, state: StackState, s3: S3, *, environ: Mapping[str, str], drive: bool
) -> list[StackServer]:
    """Ports, folders and the files that servers read; nothing is started. The caller holds the stack."""
    state.s3 = s3
    state.running = {name: server for name, server in state.running.items() if is_running(server)}
    state.ports = settle_ports(state.ports, kept=set(state.running))
    home.write(state)
    servers = stack_servers(home, state.ports, s3=s3, environ=environ)
    for folder in (f"{s3}/{BUCKET}", "prometheus", "grafana", "service"):
        home.data(folder).mkdir(parents=True, exist_ok=True)
    home.targets.mkdir(exist_ok=True)
    write_prometheus(home, state.ports, monitoring_folder())
    write_boards(home, state.ports, monitoring_folder())
    there = {server.name for server in servers if server.program is not None}
    write_site(home, state.ports, there=there, drive=drive)
    return servers


def _settle(home: StackHome, state: StackState, member: StackServer, environ: Mapping[str, str]) -> ServerStatus:
    if member.program is None:
        return _row(member, "absent", member.install)
    running = state.running.get(member.name)
    if running and running.asked != member.asked:
        stop_process(state.running.pop(member.name))
    elif running:
        row = _await(home, state, member, "running")
        if member.name in state.running:
            return row
    if not is_free(port := urlsplit(member.url).port or 0):
        return _row(member, "failed", f"another program took port {port} just now; gangline up again takes the next")
    try:
        state.running[member.name] = start_process(
            [member.program, *member.arguments],
            _child_environ(environ, member.environ),
            log=home.log(member.name),
            asked=member.asked,
        )
    except OSError as error:
        return _row(member, "failed", f"{member.program} does not start: {error}")
    home.write(state)
    return _await(home, state, member, "started")


def _await(
    home: StackHome, state: StackState, member: StackServer, well: Literal["started", "running"]
) -> ServerStatus:
    """Wait until it answers; one that died is no longer among the running."""
    mine = state.running[member.name]
    ready = wait_ready(member.ready, answers=member.answers, seconds=READY_SECONDS, alive=lambda: is_running(mine))
    if ready:
        return _row(member, well, member.note)
    said = log_tail(home.log(member.name))
    if is_running(mine):
        return _row(member, "failed", f"does not answer within {READY_SECONDS:.0f} s: {said}")
    del state.running[member.name]
    home.write(state)
    return _row(member, "failed", f"ended at once: {said}")


def _row(member: StackServer, state: Literal["started", "running", "absent", "failed"], text: str) -> ServerStatus:
    there = state in ("started", "running")
    return ServerStatus(name=member.name, kind=member.kind, state=state, url=member.url if there else "", text=text)


_INHERITED = (
    "PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "VIRTUAL_ENV", "PYTHONPATH", "XDG_CACHE_HOME", "OMP_NUM_THREADS",
)  # fmt: skip


def _child_environ(environ: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Variables that a program needs of the caller, and its own; no other secret of the caller reaches it."""
    return {**{name: environ[name] for name in _INHERITED if name in environ}, **own}


def board_url(rows: list[ServerStatus]) -> str:
    """Address of the boards; empty where Grafana does not serve them."""
    grafana = next((row.url for row in rows if row.name == "grafana"), "")
    return f"{grafana}/dashboards/f/gangline" if grafana else ""


def take_down(home: StackHome, *, forget: bool = False) -> list[ServerStatus]:
    """Stop every server of the stack; those that are gone already are said to be.

    Raises:
        CapacityError: Another `up` or `down` is at it.
        StorageError: Its folder could not be removed.
    """
    if not home.folder.is_dir():
        return []
    with home.held():
        rows = _stop_all(home, lenient=forget)
        if forget:
            _remove(home)
    return rows


def _stop_all(home: StackHome, *, lenient: bool) -> list[ServerStatus]:
    """`lenient`: for an unreadable state nothing is stopped, so that its folder can be removed."""
    try:
        state = home.read()
    except ConfigError:
        if lenient:
            return []
        raise
    rows = []
    for name, running in reversed(state.running.items()):
        rows.append(ServerStatus(name=name, kind="", state="stopped" if stop_process(running) else "gone"))
    state.running = {}
    home.write(state)
    return rows


def _remove(home: StackHome) -> None:
    try:
        shutil.rmtree(home.folder)
    except OSError as error:
        raise StorageError(f"wanted to remove {home.folder}, found: {error}; allow it, then ask again") from error


_TERMINATE_SECONDS = 20.0


def start_process(arguments: Sequence[str], environ: Mapping[str, str], *, log: Path, asked: str) -> RunningServer:
    """Start a program; it outlives this process and reads nothing. Raises OSError where it cannot be run."""
    files = (
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    )
    pid = os.posix_spawn(arguments[0], list(arguments), environ, file_actions=files, setsid=True)
    return RunningServer(pid, procfs.start_time(pid) or 0, asked)


def is_running(process: RunningServer) -> bool:
    """Whether the process runs; another process with its pid does not count."""
    return procfs.is_alive(process.pid, process.started)


def stop_process(process: RunningServer) -> bool:
    """End exactly that process, first by asking; False: it was gone already."""
    if not is_running(process):
        return False
    _signal(process, signal.SIGTERM)
    if not _ends_within(process, _TERMINATE_SECONDS):
        _signal(process, signal.SIGKILL)
        _ends_within(process, _TERMINATE_SECONDS)
    return True


def log_tail(log: Path) -> str:
    """What a server that died said last, in three lines."""
    try:
        text = log.read_text("utf-8", "replace")
    except OSError:
        return "it wrote nothing"
    said = [line.strip() for line in text.splitlines() if line.strip()]
    return " / ".join(said[-3:])[-400:] or "it wrote nothing"


def _signal(process: RunningServer, number: signal.Signals) -> None:
    """Send a signal to the process by its pid, right after it was seen to be ours."""
    if is_running(process):
        try:
            os.kill(process.pid, number)
        except ProcessLookupError:
            return


def _ends_within(process: RunningServer, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while is_running(process):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


_ONE_ANSWER_SECONDS = 2.0


def wait_ready(url: str, *, answers: tuple[int, ...], seconds: float, alive: Callable[[], bool]) -> bool:
    """Ask until one of `answers` comes; False after `seconds`, or once `alive` says no: then somebody else answered."""
    deadline = time.monotonic() + seconds
    while True:
        if http_status(url) in answers:
            return alive()
        if not alive() or time.monotonic() > deadline:
            return False
        time.sleep(0.1)


def http_status(url: str) -> int | None:
    """Status of the answer; None: there is none."""
    from gangline.http.client import HttpClient, TimeLimits  # needs a package that comes with the servers

    client = HttpClient(limits=TimeLimits(connect_seconds=_ONE_ANSWER_SECONDS))
    try:
        return client.request("GET", url, deadline=Deadline(_ONE_ANSWER_SECONDS)).status
    except RequestFailed:
        return None
    finally:
        client.close()
