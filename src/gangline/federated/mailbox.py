"""Rounds between two processes that share a folder and nothing else: calls go one way, answers the other.

`MailboxMembers(FOLDER)` asks; the other process takes the calls from `Mailbox(FOLDER)` and answers them. It is used
twice: the rank of a coordinator, which is in a sandbox, asks the carrier's process outside; and the carrier's process
at a member, outside, asks the member's rank in its sandbox. Neither side trusts files of the other: folders and files
that are links are refused, sizes are bounded, and tensors are read as arrays alone.

    calls/00012-001-5f0c….json .safetensors      answers/00012-001-5f0c….json .0.safetensors, members.json
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from gangline.errors import GanglineError, IntegrityError, error_for
from gangline.federated.protocol import (
    Acceptance,
    CallHead,
    Contribution,
    RoundAnswers,
    RoundCall,
    Spent,
    most_bytes,
    pack_tensors,
    unpack_tensors,
)
from gangline.spec.codec import canonical, from_json
from gangline.spec.federated import RefusedReason

MAILBOX = "federation"
"""Name of the folder in that of a gang, in which its rank asks a carrier."""
_CALLS, _ANSWERS, _CLOSED, _MEMBERS = "calls", "answers", "closed.json", "members.json"
_MOST_JSON_BYTES = 4 << 20
_MOST_CALL_BYTES = 64 << 30
_POLL_SECONDS = 0.1


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerPart:
    """A contribution without its change, as JSON."""

    members: tuple[str, ...]
    weight: float
    has_change: bool
    loss: float | None
    metrics: dict[str, tuple[float, float]]


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerFile:
    """Answers to a call without their changes, as JSON; or the error that there are none."""

    parts: tuple[AnswerPart, ...] = ()
    refused: tuple[tuple[str, RefusedReason], ...] = ()
    bytes_up: int = 0
    bytes_down: int = 0
    engine: str = ""
    spent: Spent | None = None
    exit_code: int | None = None
    """Exit code of the error; None: there is none."""
    message: str = ""


class MailboxMembers:
    """Members behind a mailbox: implements `RoundMembers`."""

    def __init__(
        self, folder: Path, *, on_wait: Callable[[], None] = lambda: None,
        on_acceptance: Callable[[Acceptance], None] = lambda _: None, poll_seconds: float = _POLL_SECONDS,
    ) -> None:  # fmt: skip
        """Ask through `folder`, which exists.

        Args:
            folder: Shared with the process that answers.
            on_wait: Called between looks for an answer; what it raises ends the wait.
            on_acceptance: Called with what the other side tells of its members, each time that it changes.
            poll_seconds: Time between two looks.
        """
        self._folder = folder
        self._on_wait, self._on_acceptance = on_wait, on_acceptance
        self._told: Acceptance | None = None
        self._poll_seconds = poll_seconds

    def ask(self, call: RoundCall) -> RoundAnswers:
        """Answers to `call`; the process that answers keeps the time of it.

        Raises:
            GanglineError: That process said so: `CapacityError` where no quorum of members can be reached.
            IntegrityError: Its answer is not one.
        """
        weights = pack_tensors(call.weights)
        name = _name_of(call, weights)
        with _opened(self._folder, _CALLS, make=True) as calls:
            for old in _listed(calls):
                if not old.startswith(name):
                    os.unlink(old, dir_fd=calls)
            _write(calls, f"{name}.safetensors", weights)
            _write(calls, f"{name}.json", canonical(call.head))
        while (answers := self._find(name, call)) is None:
            self._on_wait()
            self._hear()
            time.sleep(self._poll_seconds)
        return answers

    def _hear(self) -> None:
        """Pass on what the other side says of members."""
        if not (self._folder / _ANSWERS / _MEMBERS).exists():
            return
        with _opened(self._folder, _ANSWERS) as answers:
            told = from_json(Acceptance, _read(answers, _MEMBERS, _MOST_JSON_BYTES))
        if told != self._told:
            self._told = told
            self._on_acceptance(told)

    def _find(self, name: str, call: RoundCall) -> RoundAnswers | None:
        if not (self._folder / _ANSWERS / f"{name}.json").exists():
            return None
        with _opened(self._folder, _ANSWERS) as answers:
            file = from_json(AnswerFile, _read(answers, f"{name}.json", _MOST_JSON_BYTES))
            if file.exit_code is not None:
                raise error_for(file.exit_code)(file.message)
            most = most_bytes(call.weights)
            changes = [
                unpack_tensors(_read(answers, f"{name}.{index}.safetensors", most)) if part.has_change else None
                for index, part in enumerate(file.parts)
            ]
        parts = tuple(
            Contribution(
                members=part.members, weight=part.weight, change=change, loss=part.loss, metrics=part.metrics
            )
            for part, change in zip(file.parts, changes, strict=True)
        )  # fmt: skip
        return RoundAnswers(
            contributions=parts, refused=file.refused, bytes_up=file.bytes_up, bytes_down=file.bytes_down,
            engine=file.engine, spent=file.spent,
        )  # fmt: skip

    def close(self) -> None:
        """Tell the process that answers that no call follows."""
        with _opened(self._folder, _CALLS, make=True) as calls:
            _write(calls, _CLOSED, b"{}")


class Mailbox:
    """The side that answers."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._names: dict[tuple[int, int], str] = {}
        self._told: Acceptance | None = None

    @property
    def is_closed(self) -> bool:
        """Whether no call follows."""
        return (self._folder / _CALLS / _CLOSED).exists()

    def next_call(self) -> RoundCall | None:
        """The call that waits for an answer; None: there is none now.

        Raises:
            IntegrityError: What waits is no call.
        """
        if not (self._folder / _CALLS).exists():
            return None
        with _opened(self._folder, _CALLS) as calls, _opened(self._folder, _ANSWERS, make=True) as answers:
            done = _listed(answers)
            for file in sorted(_listed(calls), reverse=True):
                if file.endswith(".json") and file[0].isdigit() and file not in done:
                    return self._read_call(calls, file.removesuffix(".json"))
        return None

    def _read_call(self, calls: int, name: str) -> RoundCall | None:
        try:
            head = from_json(CallHead, _read(calls, f"{name}.json", _MOST_JSON_BYTES))
            weights = _read(calls, f"{name}.safetensors", _MOST_CALL_BYTES)
        except FileNotFoundError:
            return None  # withdrawn meanwhile: another call is on its way
        call = head.with_weights(weights)
        if _name_of(call, weights) != name:
            raise IntegrityError(f"{name}: wanted the call of that name, found round {head.number}")
        self._names[call.number, call.attempt] = name
        return call

    def answer(self, call: RoundCall, answers: RoundAnswers) -> None:
        """Answer a call that `next_call` returned."""
        parts = tuple(
            AnswerPart(
                members=contribution.members, weight=contribution.weight, has_change=contribution.change is not None,
                loss=contribution.loss, metrics=dict(contribution.metrics),
            )
            for contribution in answers.contributions
        )  # fmt: skip
        file = AnswerFile(
            parts=parts, refused=answers.refused, bytes_up=answers.bytes_up, bytes_down=answers.bytes_down,
            engine=answers.engine, spent=answers.spent,
        )  # fmt: skip
        self._write(call, file, [contribution.change for contribution in answers.contributions])

    def tell(self, found: Acceptance) -> None:
        """Tell the side that asks who takes part, while its call waits for an answer."""
        if found != self._told:
            self._told = found
            with _opened(self._folder, _ANSWERS, make=True) as answers:
                _write(answers, _MEMBERS, canonical(found))

    def fail(self, call: RoundCall, error: GanglineError) -> None:
        """Answer a call with an error, which is raised where it was asked."""
        self._write(call, AnswerFile(exit_code=error.exit_code, message=str(error)), [])

    def _write(self, call: RoundCall, found: AnswerFile, changes: list[Any]) -> None:
        name = self._names[call.number, call.attempt]
        with _opened(self._folder, _ANSWERS, make=True) as answers:
            for old in _listed(answers):
                if not old.startswith(name):
                    os.unlink(old, dir_fd=answers)
            for index, change in enumerate(changes):
                if change is not None:
                    _write(answers, f"{name}.{index}.safetensors", pack_tensors(change))
            _write(answers, f"{name}.json", canonical(found))


def _name_of(call: RoundCall, weights: bytes) -> str:
    """One name a call: a rank that begins again and asks the same is given the answer that is already there."""
    return f"{call.number:05}-{call.attempt:03}-{sha256(weights).hexdigest()[:16]}"


@contextmanager
def _opened(folder: Path, name: str, *, make: bool = False) -> Iterator[int]:
    """File descriptor of a folder in `folder`; neither is a link, as the other side might put there."""
    flags, handles = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, []
    try:
        handles.append(os.open(folder, flags))
        if make:
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=handles[0])
        handles.append(os.open(name, flags, dir_fd=handles[0]))
    except OSError as error:
        for handle in handles:
            os.close(handle)
        raise IntegrityError(f"{folder / name}: wanted a folder and no link, found: {error.strerror}") from error
    try:
        yield handles[1]
    finally:
        for handle in handles:
            os.close(handle)


def _listed(folder: int) -> set[str]:
    with os.scandir(folder) as entries:
        return {entry.name for entry in entries}


def _write(folder: int, name: str, data: bytes) -> None:
    """Create a file whole, in place of one of that name."""
    draft = f".{name}.{os.getpid()}"
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644, dir_fd=folder)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)


def _read(folder: int, name: str, most: int) -> bytes:
    """A file of at most `most` bytes, which is no link."""
    try:
        handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise IntegrityError(f"{name}: wanted a file, found: {error.strerror}") from error
    with os.fdopen(handle, "rb") as file:
        size = os.fstat(handle).st_size
        if size > most:
            raise IntegrityError(f"{name}: wanted at most {most} bytes, found {size}")
        return file.read(size)
