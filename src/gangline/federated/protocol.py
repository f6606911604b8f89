"""What a round asks of the members of a federation, and what they answer.

Tensors travel as float32 in the safetensors format, and as nothing that could be code.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gangline.checkpoint.format.safetensors import header_bytes, header_length, parse_header
from gangline.errors import IntegrityError
from gangline.spec.federated import RefusedReason

Tensors = Mapping[str, NDArray[np.float32]]
"""Trained tensors and floating buffers of the model, by name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CallHead:
    """A call without its weights, as JSON."""

    number: int
    """Round, from 1; the one behind the last judges the model and does not train."""
    attempt: int
    """Attempt of the round, from 1."""
    trains: bool
    seconds: float
    """Time after which the round closes."""

    def with_weights(self, weights: bytes) -> "RoundCall":
        """The call with its weights, a file of tensors. Raises IntegrityError for another file."""
        return RoundCall(**asdict(self), weights=unpack_tensors(weights))


@dataclass(frozen=True, kw_only=True, slots=True)
class RoundCall(CallHead):
    """What members are asked for in one attempt of a round."""

    weights: Tensors

    @property
    def head(self) -> CallHead:
        """The call without its weights."""
        return CallHead(number=self.number, attempt=self.attempt, trains=self.trains, seconds=self.seconds)

    @property
    def num_numbers(self) -> int:
        """Numbers of a change that answers it."""
        return sum(weight.size for weight in self.weights.values()) if self.trains else 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Contribution:
    """Answer of one member, or with a secure sum that of several, whose single ones the coordinator has not seen."""

    members: tuple[str, ...]
    weight: float
    """Weight of the answer in a mean; of several members the sum of theirs."""
    change: Tensors | None
    """Change of the weights, of several members their weighted mean; None: the round did not train."""
    loss: float | None
    """Mean training loss, weighted likewise."""
    metrics: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Sum and weight by name, of the call's weights on held-out data: the mean over all of them is sum / weight."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Spent:
    """Privacy that the trainings of a member, or of the one that spent most, have spent so far."""

    epsilon: float
    accountant: str
    """Software that says so, with its version: `opacus 1.6.0`; of several members each one that they have."""

    @staticmethod
    def most(of: "Iterable[Spent]") -> "Spent | None":
        """The largest, by all that account for one; None: none says anything."""
        found = list(of)
        accountants = sorted({each.accountant for each in found})
        return Spent(epsilon=max(each.epsilon for each in found), accountant=", ".join(accountants)) if found else None


@dataclass(frozen=True, kw_only=True, slots=True)
class RoundAnswers:
    """What came back from one attempt before it closed."""

    contributions: tuple[Contribution, ...]
    refused: tuple[tuple[str, RefusedReason], ...] = ()
    """Member and reason of every answer that does not count."""
    bytes_up: int = 0
    bytes_down: int = 0
    engine: str = ""
    """Carrier that asked, with its version: `nvflare 2.9.0`; empty: members are simulated."""
    spent: Spent | None = None
    """Most that a member has spent so far; None: members do not say, as under a carried secure sum."""

    @property
    def members(self) -> tuple[str, ...]:
        """Members whose answers count, sorted."""
        return tuple(sorted(name for contribution in self.contributions for name in contribution.members))


@dataclass(frozen=True, kw_only=True, slots=True)
class Acceptance:
    """Who has accepted the run so far, as a carrier asks its members."""

    accepted: int
    missing: tuple[str, ...]
    """Each of the others, and why: `leipzig: approval of offer 7d30e1c2 is pending`."""


class RoundMembers(Protocol):
    """Those who train: simulated ones in the gang, or clients of a carrier."""

    def ask(self, call: RoundCall) -> RoundAnswers:
        """Ask all members and wait for them, at most `call.seconds`. Every rank of the gang makes the call.

        Raises:
            CapacityError: No quorum of members can be reached at all.
        """
        ...

    def close(self) -> None:
        """Let the members go."""
        ...


_DTYPE = "F32"
_HEADER_BYTES = 4096
"""Most bytes of a header beyond those of names and shapes of its tensors, each tensor counted."""


def pack_tensors(tensors: Tensors) -> bytes:
    """One safetensors file, its tensors sorted by name: equal tensors are equal bytes."""
    arrays = {name: np.asarray(tensors[name], dtype="<f4", order="C") for name in sorted(tensors)}
    head = header_bytes({name: (_DTYPE, array.shape) for name, array in arrays.items()})
    return b"".join((head, *(array.tobytes() for array in arrays.values())))


def most_bytes(tensors: Tensors) -> int:
    """Most bytes that a file of tensors with these names and shapes may have."""
    return sum(tensor.nbytes + len(name.encode()) + _HEADER_BYTES for name, tensor in tensors.items()) + _HEADER_BYTES


def unpack_tensors(data: bytes) -> Tensors:
    """The tensors of such a file, as copies.

    Raises:
        IntegrityError: It is something else, or holds another dtype.
    """
    entries = parse_header(data[: header_length(data[:8], len(data))], len(data))
    other = sorted({entry.dtype for entry in entries.values()} - {_DTYPE})
    if other:
        raise IntegrityError(f"wanted tensors of {_DTYPE} alone, found {', '.join(other)}")
    return {
        name: np.frombuffer(data, "<f4", (entry.end - entry.start) // 4, entry.start).reshape(entry.shape).copy()
        for name, entry in entries.items()
    }
