"""What a coordinator knows of its members: a file in its kit, written by the run that uses it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gangline.federated.protocol import RefusedReason
from gangline.flare.kit import Kit
from gangline.spec.codec import canonical, from_json
from gangline.storage.folder.durable_files import replace_file

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
