"""What a coordinator and its members send each other in NVFlare's tasks: JSON and tensors as bytes, nothing else.

A task or an answer is a dictionary of bytes and texts, so that neither side builds an object that the other one chose.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from gangline.errors import IntegrityError
from gangline.federated.merge import refusal
from gangline.federated.protocol import (
    CallHead,
    Contribution,
    RoundAnswers,
    RoundCall,
    Spent,
    Tensors,
    most_bytes,
    pack_tensors,
    unpack_tensors,
)
from gangline.spec.codec import canonical, from_json
from gangline.spec.federated import RefusedReason

OFFER, TRAIN, SUM = "offer", "train", "sum"
"""Names of tasks."""
MOST_ANSWER_JSON_BYTES = 1 << 20
MOST_NAME_LETTERS = 40


@dataclass(frozen=True, kw_only=True, slots=True)
class _AnswerHead:
    number: int
    attempt: int
    weight: float
    loss: float | None
    metrics: dict[str, tuple[float, float]]
    spent: Spent | None


@dataclass(frozen=True, kw_only=True, slots=True)
class _SumHead:
    number: int
    attempt: int
    names: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Names:
    names: tuple[str, ...]


def call_payload(call: RoundCall) -> dict[str, bytes]:
    """A call as it is sent."""
    return {"call": canonical(call.head), "weights": pack_tensors(call.weights)}


def read_call(payload: Mapping[str, Any]) -> RoundCall:
    """The call of a payload. Raises IntegrityError for anything else."""
    return from_json(CallHead, bytes_of(payload, "call")).with_weights(bytes_of(payload, "weights"))


def answer_payload(call: RoundCall, answer: Contribution, *, spent: Spent | None) -> dict[str, bytes]:
    """A member's answer as it is sent, with what its trainings have spent so far."""
    head = _AnswerHead(
        number=call.number, attempt=call.attempt, weight=answer.weight, loss=answer.loss,
        metrics=dict(answer.metrics), spent=spent,
    )  # fmt: skip
    change = b"" if answer.change is None else pack_tensors(answer.change)
    return {"answer": canonical(head), "change": change}


def key_payload(key: bytes, names: Iterable[str]) -> dict[str, bytes]:
    """A member's signed key, with the names of what it measured."""
    return {"key": key, "names": canonical(sorted(names))}


def read_key(payload: Mapping[str, Any]) -> tuple[bytes, list[str]] | RefusedReason:
    """Signed key and names of metrics of a member, or why there are none."""
    if (reason := _refused(payload)) is not None:
        return reason
    try:
        names = from_json(_Names, b'{"names":' + bytes_of(payload, "names")[:MOST_ANSWER_JSON_BYTES] + b"}").names
        return bytes_of(payload, "key"), list(names)
    except IntegrityError:
        return "shape"


def sum_payload(call: RoundCall, keys: Sequence[bytes], names: Sequence[str]) -> dict[str, Any]:
    """What members need to mask their answers to `call`."""
    head = _SumHead(number=call.number, attempt=call.attempt, names=tuple(names))
    return {"sum": canonical(head), "keys": list(keys)}


def read_sum(payload: Mapping[str, Any]) -> tuple[int, int, list[bytes], list[str]]:
    """Round, attempt, keys and names. Raises IntegrityError for anything else."""
    head, keys = from_json(_SumHead, bytes_of(payload, "sum")), payload.get("keys")
    if not isinstance(keys, list) or not all(isinstance(key, bytes) for key in keys):
        raise IntegrityError("keys: wanted a list of bytes, found something else")
    return head.number, head.attempt, keys, list(head.names)


def masked_payload(vector: bytes) -> dict[str, bytes]:
    """A masked answer as it is sent."""
    return {"masked": vector}


def read_masked(payload: Mapping[str, Any], *, size: int) -> bytes | RefusedReason:
    """A masked answer of `size` bytes, or why there is none."""
    if (reason := _refused(payload)) is not None:
        return reason
    found = payload.get("masked")
    return found if isinstance(found, bytes) and len(found) == size else "shape"


def refused_payload(reason: RefusedReason) -> dict[str, str]:
    """A member's word that it does not answer a call; why in more words stays in its log."""
    return {"refused": reason}


def read_answer(payload: Mapping[str, Any], call: RoundCall, member: str, roster: tuple[str, ...]) -> RoundAnswers:
    """What came from the client whose certificate says `member`: one answer, or why it does not count."""
    found = _read_contribution(payload, call, member, roster)
    if not isinstance(found, Contribution):
        return RoundAnswers(contributions=(), refused=((member, found),))
    return RoundAnswers(contributions=(found,), spent=from_json(_AnswerHead, bytes_of(payload, "answer")).spent)


def _read_contribution(
    payload: Mapping[str, Any], call: RoundCall, member: str, roster: tuple[str, ...]
) -> Contribution | RefusedReason:
    if (reason := _refused(payload)) is not None:
        return reason
    try:
        head = from_json(_AnswerHead, bytes_of(payload, "answer")[:MOST_ANSWER_JSON_BYTES])
        data = bytes_of(payload, "change")
        if head.spent is not None and len(head.spent.accountant) > MOST_NAME_LETTERS:
            return "shape"
        if (head.number, head.attempt) != (call.number, call.attempt) or bool(data) != call.trains:
            return "old_round"
        if len(data) > most_bytes(call.weights):
            return "size"
        change: Tensors | None = unpack_tensors(data) if data else None
    except IntegrityError:
        return "shape"
    answer = Contribution(
        members=(member,), weight=head.weight, change=change, loss=head.loss, metrics=head.metrics
    )  # fmt: skip
    return refusal(answer, call.weights, roster) or answer


def _refused(payload: Mapping[str, Any]) -> RefusedReason | None:
    said = payload.get("refused")
    return None if said is None else next((arg for arg in get_args(RefusedReason) if arg == said), "error")


def bytes_of(payload: Mapping[str, Any], key: str) -> bytes:
    """Bytes of a payload under `key`. Raises IntegrityError where there is something else."""
    found = payload.get(key)
    if not isinstance(found, bytes):
        raise IntegrityError(f"{key}: wanted bytes, found {type(found).__name__}")
    return found
