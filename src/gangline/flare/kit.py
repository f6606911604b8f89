"""Folders that `nvflare provision` makes for one participant, and what gangline keeps in them: states of members."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gangline.errors import ConfigError
from gangline.signing.keys import key_folder
from gangline.spec.codec import canonical, from_json
from gangline.spec.federated import RefusedReason
from gangline.storage.folder.durable_files import replace_file

Role = tuple[str, str]
CLIENT: Role = ("fed_client.json", "client")
SERVER: Role = ("fed_server.json", "server")
ADMIN: Role = ("fed_admin.json", "client")
"""File of a participant's settings, and the name of its certificate and key."""


@dataclass(frozen=True, slots=True)
class Kit:
    """Startup kit of one participant."""

    folder: Path
    name: str
    """Name of a client's certificate, user of an admin kit, host of a server."""

    @property
    def own(self) -> Path:
        """Folder that gangline keeps in the kit."""
        return self.folder / "gangline"

    @property
    def settings(self) -> Path:
        """Settings of a member."""
        return self.own / "member.toml"

    @property
    def server(self) -> str:
        """Host and port that a client dials."""
        plain = read_settings(self.folder / "startup/fed_client.json")
        return str(plain["servers"][0]["service"]["target"])

    def local(self, name: str) -> Path:
        """A file of NVFlare's that the site may change."""
        return self.folder / "local" / name


def open_kit(folder: Path, role: Role) -> Kit:
    """The kit in `folder`.

    Raises:
        ConfigError: It lacks a file, or is the kit of another role.
    """
    config, certificate = role
    startup = folder / "startup"
    missing = [name for name in (config, f"{certificate}.crt", f"{certificate}.key", "rootCA.pem")
               if not (startup / name).is_file()]  # fmt: skip
    if missing:
        kind = config.removesuffix(".json").removeprefix("fed_")
        raise ConfigError(
            f"{folder}: wanted a {kind} kit of NVFlare, found no startup/{', startup/'.join(missing)};"
            " `nvflare provision` writes the kits of all participants, each into a folder of its own"
        )
    plain = read_settings(startup / config)
    try:
        name = {
            "fed_client.json": lambda: plain["client"]["fqsn"],
            "fed_server.json": lambda: plain["servers"][0]["admin_server"],
            "fed_admin.json": lambda: plain["admin"]["username"],
        }[config]()
    except (KeyError, IndexError, TypeError) as error:
        raise ConfigError(
            f"{startup / config}: wanted the settings of NVFlare 2.9, found others: {error!r}; provision the kit again"
        ) from error
    return Kit(folder.resolve(), str(name))


def joined_kit(named: Path | None, environ: Mapping[str, str]) -> Kit:
    """The client kit of this machine: the one that is named, else the one that this user joined with last."""
    folder = named or _link(environ)
    if named is None and not folder.exists():
        raise ConfigError(f"wanted the kit of a member, found no {folder}; join first, or name it with --kit")
    return open_kit(folder.resolve(), CLIENT)


def remember(kit: Kit, environ: Mapping[str, str]) -> None:
    """Make `kit` the one of this user."""
    link = _link(environ)
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(kit.folder)


def _link(environ: Mapping[str, str]) -> Path:
    return key_folder(environ).with_name("member")


def read_settings(path: Path) -> Any:
    """A JSON file of a kit. Raises ConfigError for one that cannot be read."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: wanted a JSON file of NVFlare, found: {error}") from error


def require_own(path: Path) -> None:
    """Raises ConfigError where others than this user and root may write the file, or its folder."""
    for each in (path, path.parent):
        try:
            status = each.lstat()
        except OSError as error:
            raise ConfigError(f"wanted {each}, found: {error.strerror}; `gangline federate join` writes it") from error
        if status.st_uid not in {0, os.geteuid()} or status.st_mode & 0o022:
            raise ConfigError(
                f"{each}: wanted what its administrator alone may write, found owner {status.st_uid} and mode"
                f" {status.st_mode & 0o777:o}; chmod go-w {each}"
            )


_FILE = "members.json"


def answer_file(folder: Path, member: str) -> Path:
    """File with a member's answer to an offer, which a job of the server writes and its coordinator reads."""
    return folder / f"{member}.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class MemberState:
    """One member."""

    name: str
    state: Literal["absent", "connected", "accepted", "pending", "refused"] = "absent"
    reason: RefusedReason | None = None
    message: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class _States:
    members: tuple[MemberState, ...]


def write_states(kit: Kit, states: Sequence[MemberState]) -> None:
    """Replace what is known."""
    replace_file(kit.own / _FILE, canonical(_States(members=tuple(states))), durable=False)


def read_states(kit: Kit) -> tuple[MemberState, ...]:
    """What the last coordinator wrote; empty before there was one."""
    path = kit.own / _FILE
    return from_json(_States, path.read_bytes()).members if path.exists() else ()
