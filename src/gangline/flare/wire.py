"""What a coordinator and its members send each other in NVFlare's tasks: JSON and tensors as bytes, nothing else.

A task or an answer is a dictionary of bytes and texts, so that neither side builds an object that the other one chose.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from gangline.errors import IntegrityError
from gangline.federated.merge import refusal
from gangline.federated.protocol import Contribution, RefusedReason, RoundAnswers, RoundCall, Tensors
from gangline.federated.tensors import most_bytes, pack_tensors, unpack_tensors
from gangline.spec.codec import canonical, from_json

OFFER, TRAIN = "offer", "train"
"""Names of tasks."""
MOST_ANSWER_JSON_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class _CallHead:
    number: int
    attempt: int
    trains: bool
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class _AnswerHead:
    number: int
    attempt: int
    weight: float
    loss: float | None
    metrics: dict[str, tuple[float, float]]
    epsilon: float | None


def call_payload(call: RoundCall) -> dict[str, bytes]:
    """A call as it is sent."""
    head = _CallHead(number=call.number, attempt=call.attempt, trains=call.trains, seconds=call.seconds)
    return {"call": canonical(head), "weights": pack_tensors(call.weights)}


def read_call(payload: Mapping[str, Any]) -> RoundCall:
    """The call of a payload. Raises IntegrityError for anything else."""
    head = from_json(_CallHead, bytes_of(payload, "call"))
    return RoundCall(
        number=head.number, attempt=head.attempt, trains=head.trains, seconds=head.seconds,
        weights=unpack_tensors(bytes_of(payload, "weights")),
    )  # fmt: skip


def answer_payload(call: RoundCall, answer: Contribution, *, epsilon: float | None) -> dict[str, bytes]:
    """A member's answer as it is sent, with what its trainings have spent so far."""
    head = _AnswerHead(
        number=call.number,
        attempt=call.attempt,
        weight=answer.weight,
        loss=answer.loss,
        metrics=dict(answer.metrics),
        epsilon=epsilon,
    )
    change = b"" if answer.change is None else pack_tensors(answer.change)
    return {"answer": canonical(head), "change": change}


def refused_payload(reason: RefusedReason) -> dict[str, str]:
    """A member's word that it does not answer a call; why in more words stays in its log."""
    return {"refused": reason}


def read_answer(payload: Mapping[str, Any], call: RoundCall, member: str, roster: tuple[str, ...]) -> RoundAnswers:
    """What came from the client whose certificate says `member`: one answer, or why it does not count."""
    found = _read_contribution(payload, call, member, roster)
    if not isinstance(found, Contribution):
        return RoundAnswers(contributions=(), refused=((member, found),))
    epsilon = from_json(_AnswerHead, bytes_of(payload, "answer")).epsilon
    return RoundAnswers(contributions=(found,), epsilon=epsilon)


def _read_contribution(
    payload: Mapping[str, Any], call: RoundCall, member: str, roster: tuple[str, ...]
) -> Contribution | RefusedReason:
    reason = payload.get("refused")
    if reason is not None:
        return next((each for each in get_args(RefusedReason) if each == reason), "error")
    try:
        head = from_json(_AnswerHead, bytes_of(payload, "answer")[:MOST_ANSWER_JSON_BYTES])
        data = bytes_of(payload, "change")
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


def bytes_of(payload: Mapping[str, Any], key: str) -> bytes:
    """Bytes of a payload under `key`. Raises IntegrityError where there is something else."""
    found = payload.get(key)
    if not isinstance(found, bytes):
        raise IntegrityError(f"{key}: wanted bytes, found {type(found).__name__}")
    return found
