"""Rounds of a federation: asks members, counts what comes back, merges with a quorum, tries a lost round again."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from gangline.errors import CapacityError, GanglineError, GateError, TrainingError
from gangline.federated.merge import means_of, merge, refusal
from gangline.federated.protocol import Contribution, RoundAnswers, RoundCall, RoundMembers, Spent, Tensors
from gangline.spec.federated import FederationPlan, RefusedReason

MOST_LOST = 5
"""Lost attempts of one round, after which no quorum is to be expected."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RoundResult:
    """One attempt of a round."""

    number: int
    attempt: int
    answered: tuple[str, ...]
    """Members whose answers count, sorted."""
    change: Tensors | None
    """Merged change; None: the round is lost, or did not train."""
    loss: float | None
    metrics: dict[str, float]
    """Means over the held-out data of all that answered; empty unless members judged the weights."""
    refused: dict[RefusedReason, int] = field(default_factory=dict)
    bytes_up: int = 0
    bytes_down: int = 0
    engine: str = ""
    spent: Spent | None = None
    is_lost: bool = False
    """Fewer members answered than the quorum."""


class Rounds:
    """The rounds of one generation of a coordinator; it holds no weights, so that a restart continues from a save."""

    def __init__(
        self, plan: FederationPlan, members: RoundMembers, *, generation: int = 0,
        on_attempt: Callable[[RoundResult], None] = lambda _: None,
    ) -> None:  # fmt: skip
        """Args:
        plan: Of the run.
        members: Those who train.
        generation: Start of the gang, from 0: no attempt of an earlier one is asked a second time.
        on_attempt: Called with every attempt, merged or lost.
        """
        self._plan, self._members, self._on_attempt = plan, members, on_attempt
        self._first_attempt = generation * MOST_LOST + 1

    def run(self, number: int, weights: Tensors, *, trains: bool = True) -> RoundResult:
        """Ask for round `number`, from 1, until a quorum answers.

        Raises:
            CapacityError: That many attempts in a row were lost, or no quorum can be reached at all.
            GateError: So many members refused by their privacy budget that no quorum is left.
            TrainingError: Model code raised at so many members that no quorum is left.
        """
        for attempt in range(self._first_attempt, self._first_attempt + MOST_LOST):
            call = RoundCall(
                number=number, attempt=attempt, trains=trains, weights=weights, seconds=self._plan.table.round_seconds
            )
            result = self._judge(call, self._members.ask(call))
            self._on_attempt(result)
            if not result.is_lost:
                return result
            self._require_quorum(result)
        reasons = ", ".join(f"{name} {count}" for name, count in sorted(result.refused.items()))
        raise CapacityError(
            f"round {number}: wanted answers of {self._plan.table.quorum} members, {MOST_LOST} times in a row fewer "
            f"came, at last {len(result.answered)} of {len(self._plan.roster)}"
            f"{f' ({reasons} refused)' if reasons else ''}; ask the members that are missing, or lower federated.quorum"
        )

    def _require_quorum(self, result: RoundResult) -> None:
        for reason, (error, words) in _FINAL.items():
            left = len(self._plan.roster) - result.refused.get(reason, 0)
            if left < self._plan.table.quorum:
                raise error(
                    f"round {result.number}: wanted a quorum of {self._plan.table.quorum}, found {left} of "
                    f"{len(self._plan.roster)} members left, for {words} of the others"
                )

    def _judge(self, call: RoundCall, answers: RoundAnswers) -> RoundResult:
        kept, refused = self._accepted(call, answers)
        answered = tuple(sorted(name for contribution in kept for name in contribution.members))
        is_lost = len(answered) < self._plan.table.quorum
        loss, metrics = means_of(kept)
        return RoundResult(
            number=call.number, attempt=call.attempt, answered=answered,
            change=merge(self._plan.table, kept) if call.trains and not is_lost else None,
            loss=loss, metrics=metrics, refused=dict(refused), bytes_up=answers.bytes_up,
            bytes_down=answers.bytes_down, engine=answers.engine, spent=answers.spent, is_lost=is_lost,
        )  # fmt: skip

    def _accepted(self, call: RoundCall, answers: RoundAnswers) -> tuple[list[Contribution], Counter[RefusedReason]]:
        """Answers that count, and the others by reason: of a member the first one counts."""
        refused = Counter(reason for _, reason in answers.refused)
        kept: list[Contribution] = []
        seen: set[str] = set()
        for contribution in answers.contributions:
            reason = refusal(contribution, call.weights, self._plan.roster)
            if reason is None and (contribution.change is not None) != call.trains:
                reason = "old_round"
            if reason is None and not seen.isdisjoint(contribution.members):
                reason = "second_answer"
            if reason is not None:
                refused[reason] += 1
                continue
            seen |= {*contribution.members}
            kept.append(contribution)
        return kept, refused


_FINAL: dict[RefusedReason, tuple[type[GanglineError], str]] = {
    "budget": (GateError, "the privacy budget refused that"),
    "error": (TrainingError, "model code raised in that"),
}
"""Refusals that another attempt does not change."""
