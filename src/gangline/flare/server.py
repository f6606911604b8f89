"""NVFlare's server of a coordinator: a child process in a copy of its kit, and the admin session with it."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from gangline import procfs
from gangline.errors import CapacityError, ConfigError, NotInstalledError, storage_errors
from gangline.flare.kit import Kit, read_settings

CONTROLLERS = ("gangline.flare.controller.OfferController", "gangline.flare.controller.RoundsController")
_VERSION = "2.9."
"""Beginning of the versions of NVFlare that are used."""
_START_SECONDS = 90.0
_DYING_SECONDS = 20.0
_MARK = "GANGLINE_FEDERATION"
"""Environment variable of all processes of a server; those of an earlier generation are found by it."""


@contextmanager
def server(kit: Kit, environ: Mapping[str, str], *, most_message_bytes: int) -> "Iterator[subprocess.Popen[bytes]]":
    """NVFlare's server of this kit, until the block ends; what an earlier one left is ended first.

    Args:
        kit: The coordinator's; its server listens on the port that it names.
        environ: Variables of its process.
        most_message_bytes: Largest message that it takes: a member that sends more sends nothing.

    Raises:
        CapacityError: Its port is taken.
        StorageError: The kit cannot be written.
    """
    folder = kit.own / "server"
    _end_all(folder)
    _require_port(kit)
    with storage_errors(folder):
        shutil.rmtree(folder, ignore_errors=True)
        kit.own.mkdir(mode=0o700, exist_ok=True)
        shutil.copytree(kit.folder, folder, ignore=lambda at, _: {"gangline"} if Path(at) == kit.folder else set())
        (folder / "local/resources.json").write_text(json.dumps(_resources(kit, folder), indent=2))
    own = {
        "PATH": f"{Path(sys.executable).parent}:{environ.get('PATH', '')}", _MARK: str(folder),
        "NVFLARE_STREAMING_MAX_BLOB_SIZE": str(most_message_bytes),
    }  # fmt: skip
    with (kit.own / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [str(folder / "startup/sub_start.sh"), "--once"], env={**environ, **own}, cwd=folder,
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait()
        _end_all(folder)


@contextmanager
def admin_session(admin: Kit, process: "subprocess.Popen[bytes]") -> Iterator[Any]:
    """NVFlare's session of an admin kit with the server that `process` starts.

    Raises:
        ConnectionError: It ended, or did not answer in time; another start may do better.
    """
    from nvflare.fuel.flare_api.flare_api import new_secure_session

    plain = read_settings(admin.folder / "startup/fed_admin.json")["admin"]
    _wait_for_port(str(plain["host"]), int(plain["port"]), process)  # a session that failed once fails for ever
    try:
        session = new_secure_session(admin.name, str(admin.folder), timeout=_START_SECONDS)
    except Exception as error:
        raise _unreachable(f"no session of {admin.name}: {error}") from error
    try:
        yield session
    finally:
        with suppress(Exception):
            session.close()


def port_of(kit: Kit) -> int:
    """Port on which the server of this kit listens. Raises ConfigError where the kit names none."""
    path = kit.folder / "startup/fed_server.json"
    try:
        return int(read_settings(path)["servers"][0]["service"]["target"].rpartition(":")[2])
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise ConfigError(f"{path}: wanted the port of the server, found none; provision the kit again") from error


def require_nvflare(where: str) -> None:
    """Raises NotInstalledError where this Python has no NVFlare, or another version; `where` begins the message."""
    try:
        found = version("nvflare")
    except PackageNotFoundError:
        found = "none"
    if not found.startswith(_VERSION):
        raise NotInstalledError(
            f"{where}: wanted nvflare {_VERSION}x, found {found}; pip install 'gangline[federated]'"
        )


def _resources(kit: Kit, folder: Path) -> dict[str, Any]:
    """Settings of the server: its own stores, our controllers alone, no logs of members."""
    plain: dict[str, Any] = read_settings(kit.local("resources.json.default"))
    plain |= {"class_list_enforcement_mode": "enforce", "class_allow_list": list(CONTROLLERS)}
    plain["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"] = str(folder / "snapshots")
    plain["components"] = [each for each in plain["components"] if each["id"] != "log_receiver"]
    for each in plain["components"]:
        if each["id"] == "job_manager":
            each["args"]["uri_root"] = str(folder / "jobs")
        if each["id"] == "job_scheduler":
            each["args"]["max_jobs"] = plain["servers"][0]["max_num_clients"]
    return plain


def _require_port(kit: Kit) -> None:
    port = port_of(kit)
    try:
        socket.create_server(("", port)).close()
    except OSError as error:
        raise CapacityError(
            f"wanted port {port} for NVFlare's server, found: {error.strerror}; one federated run at a time uses a kit"
        ) from error


def _wait_for_port(host: str, port: int, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            socket.create_connection((host, port), timeout=5.0).close()
        except OSError as error:
            if process.poll() is not None or time.monotonic() > deadline:
                raise _unreachable(f"{host}:{port}: {error.strerror or error}") from error
            time.sleep(0.5)
        else:
            return


def _unreachable(found: str) -> ConnectionError:
    return ConnectionError(f"wanted NVFlare's server, found {found}")


def _end_all(folder: Path) -> None:
    """Kill every process of a server in `folder`."""
    deadline = time.monotonic() + _DYING_SECONDS
    while (pids := list(procfs.with_variable(_MARK, str(folder)))) and time.monotonic() < deadline:
        for pid in pids:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
