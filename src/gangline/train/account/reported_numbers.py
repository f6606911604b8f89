"""Numbers that a program reports, as floats: tensors, arrays, decimals, whatever converts to one. No torch."""

from collections.abc import Mapping
from typing import Any

from gangline.errors import UsageError

_OF_A_STEP = frozenset(
    {"event", "rank", "generation", "step", "mono", "time", "samples", "seconds", "phases", "seed", "job",
     "step_seconds"}
)  # fmt: skip
"""Fields of a step's own event and line, which are measured."""


def as_numbers(call: str, values: Mapping[str, object], *, of_a_step: bool = False) -> dict[str, float]:
    """Floats of `values`, by name; `call` is what the program wrote, such as `program.report`.

    Raises:
        UsageError: A value is not one number, or, of a step, its name is that of a field that is measured.
    """
    if of_a_step and (taken := sorted(_OF_A_STEP & values.keys())):
        raise UsageError(
            f"{call}: wanted numbers under names of your own, found {', '.join(taken)}, which a step has already;"
            f" name it otherwise: my_{taken[0]}=..."
        )
    return {name: as_number(f"{call}: {name}", value) for name, value in values.items()}


def as_number(argument: str, value: Any) -> float:
    """The float of a number, or of a tensor or array with one element, whether or not it has a gradient.

    Raises:
        UsageError: It is not one number; the message begins with `argument`.
    """
    cause: Exception | None = None
    if not isinstance(value, str | bytes):  # float() would read a text
        try:
            return float(value.item() if hasattr(value, "item") else value)  # float(tensor) warns of its gradient
        except (TypeError, ValueError, OverflowError, RuntimeError) as error:
            cause = error
    shape = getattr(value, "shape", None)
    size = f" of shape {tuple(shape)}" if isinstance(shape, tuple) and shape else ""
    works = "its mean, float(...) of a number and a tensor of one element work"
    raise UsageError(f"{argument}: wanted one number, found {type(value).__name__}{size}; {works}") from cause
