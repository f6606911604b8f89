"""A round that is open: answers of members are read, checked and kept, or refused by reason and counted."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from gangline.errors import IntegrityError
from gangline.federated.protocol import Contribution, RoundAnswers, RoundCall, Spent
from gangline.federated.secure_sum import add
from gangline.federated.sum_vector import MOST_METRICS, from_bytes
from gangline.flare.wire import read_answer, read_key, read_masked, sum_payload
from gangline.spec.federated import RefusedReason
from gangline.spec.plan import Plan

Received = Callable[[str, Mapping[str, Any]], None]
"""Called with the name of a client's certificate and what it sent."""


class PlainRound:
    """Answers that are seen one by one."""

    def __init__(self, call: RoundCall, roster: tuple[str, ...]) -> None:
        self.refused: list[tuple[str, RefusedReason]] = []
        self._call, self._roster = call, roster
        self._kept: dict[str, RoundAnswers] = {}
        self._up = 0

    def received(self, name: str, payload: Mapping[str, Any]) -> None:
        """Keep the first answer of a client, or refuse it."""
        self._up += size_of(payload)
        if name in self._kept:
            self.refused.append((name, "second_answer"))
            return
        answer = read_answer(payload, self._call, name, self._roster)
        if answer.contributions:
            self._kept[name] = answer
        self.refused += answer.refused

    def answers(self) -> RoundAnswers:
        """Everything that came before it closed."""
        kept = tuple(answer for each in self._kept.values() for answer in each.contributions)
        spent = Spent.most(each.spent for each in self._kept.values() if each.spent is not None)
        return RoundAnswers(contributions=kept, refused=tuple(self.refused), bytes_up=self._up, spent=spent)


class SummedRound:
    """Answers of which only the sum is seen: signed keys come first, then masked vectors of all that sent one."""

    def __init__(self, call: RoundCall, plan: Plan, roster: tuple[str, ...]) -> None:
        assert plan.federation is not None, "a federated plan"
        self.refused: list[tuple[str, RefusedReason]] = []
        self._call, self._roster, self._table = call, roster, plan.federation.table
        self._keys: dict[str, bytes] = {}
        self._names: set[str] = set()
        self._vectors: dict[str, bytes] = {}
        self._up = self._down = 0

    @property
    def ready(self) -> tuple[str, ...]:
        """Members that have trained, sorted."""
        return tuple(sorted(self._keys))

    @property
    def names(self) -> list[str]:
        """Metrics that any of them measured, sorted."""
        return sorted(self._names)

    def received_key(self, name: str, payload: Mapping[str, Any]) -> None:
        """Keep a signed key; who does not send one is not in the sum."""
        self._up += size_of(payload)
        key = read_key(payload)
        if isinstance(key, str):
            self.refused.append((name, key))
        elif name in self._keys or name not in self._roster or len(self._names | {*key[1]}) > MOST_METRICS:
            self.refused.append((name, "second_answer" if name in self._keys else "unknown_member"))
        else:
            self._keys[name], names = key
            self._names |= {*names}

    def payload(self) -> dict[str, Any]:
        """All signed keys, for all that are ready."""
        keys = [self._keys[name] for name in self.ready]
        self._down = len(keys) * sum(map(len, keys))
        return sum_payload(self._call, keys, self.names)

    def received_vector(self, name: str, payload: Mapping[str, Any]) -> None:
        """Keep a masked vector, which alone is noise."""
        self._up += size_of(payload)
        found = read_masked(payload, size=4 * self._call.num_numbers + 8 * (2 + 2 * len(self._names)))
        if isinstance(found, str):
            self.refused.append((name, found))
        elif name in self._vectors:
            self.refused.append((name, "second_answer"))
        else:
            self._vectors[name] = found

    def answers(self) -> RoundAnswers:
        """The sum, if every vector of the list has come; else nothing, and the round is lost."""
        together: tuple[Contribution, ...] = ()
        if self._vectors and self._vectors.keys() == self._keys.keys():
            total = add([self._vectors[name] for name in self.ready], num_numbers=self._call.num_numbers)
            with suppress(IntegrityError):  # of members that lied: nobody can say which
                together = (
                    from_bytes(
                        total, self.ready, self._table, roster=len(self._roster), names=self.names,
                        weights=self._call.weights if self._call.trains else None,
                    ),
                )  # fmt: skip
        return RoundAnswers(
            contributions=together, refused=tuple(self.refused), bytes_up=self._up, bytes_down=self._down
        )  # fmt: skip


def size_of(payload: Mapping[str, Any]) -> int:
    """Bytes that a client sent."""
    return sum(len(each) for each in payload.values() if isinstance(each, bytes))
