"""Smallest change to a line, or to the devices, with which some plan fits: what a refusal suggests."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf

from gangline.planner.forecast.memory import SHARES
from gangline.spec.config.line import Line
from gangline.spec.devices import Inventory
from gangline.units import format_step

MOST_NODES = 1024


@dataclass(frozen=True, slots=True)
class FittingPlan:
    """What would be chosen."""

    name: str
    step_seconds: float | None = None
    """By forecast; None: not known."""


Fits = Callable[[Line, Inventory], FittingPlan | None]
"""None: nothing fits."""


@dataclass(frozen=True, slots=True)
class _Change:
    key: str
    """With its new value."""
    line: Line
    is_exact: bool = True
    """Nothing but time is given up: what is trained stays the same to the rounding of sums."""


def smallest_change(line: Line, inventory: Inventory, fits: Fits) -> str:
    """One change that is enough, as a sentence; empty: none of those tried is."""
    found = [pair for values in _of_line(line) if (pair := _nearest(values, inventory, fits))]
    if found:
        change, fitting = min(found, key=lambda pair: _cost(*pair))
        seconds = fitting.step_seconds
        known = f", {format_step(seconds)} a step by forecast" if seconds is not None else ""
        return f"{change.key} would fit, as {fitting.name}{known}"
    nodes = _fewest_nodes(lambda count: fits(line, replace(inventory, num_nodes=count)), inventory)
    return f"{nodes} nodes like these would fit it" if nodes else ""


def _cost(change: _Change, fitting: FittingPlan) -> tuple[bool, float]:
    """Of equals `min` keeps the first."""
    return not change.is_exact, inf if fitting.step_seconds is None else fitting.step_seconds


def _nearest(values: Sequence[_Change], inventory: Inventory, fits: Fits) -> tuple[_Change, FittingPlan] | None:
    """The first value of one key with which something fits."""
    return next(((each, found) for each in values if (found := fits(each.line, inventory))), None)


def _of_line(line: Line) -> Iterator[list[_Change]]:
    """What the line fixes, let loose key by key, the nearest values first; keys that cost least time first."""
    train, memory = line.train, line.train.memory

    def of_memory(**changes: object) -> Line:
        return replace(line, train=replace(train, memory=replace(memory, **changes)))  # type: ignore[arg-type]  # words of its keys

    if isinstance(requested := train.mesh.micro_batch, int):
        yield [
            _Change(
                f"train.mesh.micro_batch = {size}",
                replace(line, train=replace(train, mesh=replace(train.mesh, micro_batch=size))),
            )
            for size in range(requested - 1, 0, -1)
            if requested % size == 0
        ]
    if memory.loss_chunks == 1:
        yield [_Change('train.memory.loss_chunks = "auto"', of_memory(loss_chunks="auto"))]
    yield [
        _Change(f'train.memory.activation_checkpointing = "{word}"', of_memory(activation_checkpointing=word))
        for word in _more_again(memory.activation_checkpointing)
    ]
    if train.strategy not in ("auto", "explicit"):
        yield [_Change('train.strategy = "auto"', replace(line, train=replace(train, strategy="auto")))]
    if memory.offload == "none":
        yield [_Change('train.memory.offload = "auto"', of_memory(offload="auto"))]
    if train.precision == "fp32":
        changed = replace(line, train=replace(train, precision="bf16"))
        yield [_Change('train.precision = "bf16"', changed, is_exact=False)]


def _more_again(word: str) -> list[str]:
    """Words that compute more again than `word`, the least first."""
    words = list(SHARES)
    if word == "auto":
        return []
    return words[words.index(word) + 1 :] if word in words else words[-1:]


def _fewest_nodes(fits: Callable[[int], object], inventory: Inventory) -> int | None:
    """By doubling, then by halving the gap; None: even the most do not help."""
    least, most = inventory.num_nodes, inventory.num_nodes * 2
    while not fits(most):
        least, most = most, most * 2
        if most > MOST_NODES:
            return None
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (least, middle) if fits(middle) else (middle, most)
    return most
