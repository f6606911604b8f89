"""Policy for steps whose loss or gradients are not finite: stop, skip or roll back. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from gangline.errors import NonFiniteError
from gangline.train.loop.sample_order import SampleSpan
from gangline.train.parallel.model_parts import listed

NonFiniteAction = Literal["apply", "skip", "rollback"]
MAX_ROLLBACKS = 3


@dataclass(slots=True)
class NonFinitePolicy:
    """Makes the same decision on all ranks, since loss and norm are global."""

    mode: Literal["stop", "skip", "rollback"]
    max_in_a_row: int
    in_a_row: int = 0
    rollbacks: int = 0
    skipped: list[SampleSpan] = field(default_factory=list)
    """Positions that are not trained on again."""

    def judge(
        self, *, step: int, loss: float, norm: float, span: SampleSpan, not_finite: Sequence[str] = ()
    ) -> NonFiniteAction:
        """Judge a step before its update.

        Args:
            step: From 1.
            loss: Of all ranks.
            norm: Of the gradients of all ranks.
            span: Positions of its samples.
            not_finite: Parameters whose gradient is not, as far as this rank has it: for the message alone.

        Raises:
            NonFiniteError: The training must stop.
        """
        if math.isfinite(loss) and math.isfinite(norm):
            self.in_a_row = 0
            return "apply"
        found = f"step {step}, samples {span[0]} to {span[1] - 1}: loss {loss}, gradient norm {norm}"
        found += f"; gradients of {listed(not_finite)} are not finite" if not_finite else ""
        if self.mode == "stop":
            raise NonFiniteError(f"{found}; nothing was updated or saved; train.recovery.non_finite = skip or rollback")
        if self.mode == "skip":
            self.in_a_row += 1
            if self.in_a_row > self.max_in_a_row:
                raise NonFiniteError(
                    f"{found}; {self.in_a_row} such steps in a row, at most {self.max_in_a_row} are skipped"
                )
            return "skip"
        if self.rollbacks == MAX_ROLLBACKS:
            raise NonFiniteError(f"{found}; {MAX_ROLLBACKS} rollbacks did not help: check learning rate and precision")
        self.rollbacks += 1
        self.skipped.append(span)
        return "rollback"
