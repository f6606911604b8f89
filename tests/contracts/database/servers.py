"""A PostgreSQL of Debian's for tests: a fresh cluster in a folder, on a socket, as a user without rights."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

BINARIES = Path("/usr/lib/postgresql/15/bin")
NOBODY = 65534


@contextlib.contextmanager
def postgres(*, durable: bool = False, addresses: Sequence[str] = ()) -> Iterator[str]:
    """URL of a running server.

    Args:
        durable: It waits for the disk, as a real one does.
        addresses: Of loopback, where it answers on port 5432 besides its socket.
    """
    if not (BINARIES / "postgres").exists():
        pytest.skip("no PostgreSQL 15 here: apt-get install postgresql")
    folder = Path(tempfile.mkdtemp(prefix="gangline-pg-", dir="/tmp"))  # its user may enter, sockets have short names
    folder.chmod(0o755)
    data, socket = folder / "data", folder / "socket"
    for each in (data, socket):
        each.mkdir(mode=0o700)
        if os.geteuid() == 0:
            os.chown(each, NOBODY, NOBODY)
    try:
        _run("initdb", "--pgdata", str(data), "--auth=trust", "--username=gangline", "--encoding=UTF8", "--no-sync")
        with (data / "pg_hba.conf").open("a") as rules:
            rules.write("host all all 127.0.0.0/8 trust\n")
        listen = f"-c listen_addresses={','.join(addresses)} -c unix_socket_directories={socket}"
        settings = f"{listen} -c fsync={'on' if durable else 'off'}"
        _run("pg_ctl", "--pgdata", str(data), "--wait", "--log", str(data / "log"), "--options", settings, "start")
        yield f"postgresql://gangline@/postgres?host={socket}"
    finally:
        with contextlib.suppress(subprocess.CalledProcessError):
            _run("pg_ctl", "--pgdata", str(data), "--mode=immediate", "--wait", "stop")
        shutil.rmtree(folder, ignore_errors=True)


def _run(name: str, *arguments: str) -> None:
    become = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"] if os.geteuid() == 0 else []
    subprocess.run(
        [*become, str(BINARIES / name), *arguments], check=True, stdout=subprocess.DEVNULL, cwd="/", timeout=120
    )
