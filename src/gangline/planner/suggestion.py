"""Smallest change to a line, or to the devices, with which some plan fits: what a refusal suggests.

Precision and optimizer change what is trained: they are named only if nothing else is enough, after more servers.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import inf

from gangline.planner.pool import choose_precision, divisors
from gangline.planner.settings import SHARES
from gangline.spec.config.line import Line
from gangline.spec.config.optimizer import GROUP, moment_bytes
from gangline.spec.devices import Inventory
from gangline.spec.plan import Precision
from gangline.units import format_bytes, format_step

MOST_NODES = 1024


@dataclass(frozen=True, slots=True)
class FittingPlan:
    """What would be chosen."""

    name: str
    step_seconds: float | None = None
    """Seconds by forecast; None: not known."""
    need_bytes: float | None = None
    """Need of a rank; None or 0: not known."""


Fits = Callable[[Line, Inventory], FittingPlan | None]
"""None: nothing fits."""


Change = tuple[str, Line]
"""Key with its new value, and the line with it."""


def suggest_change(line: Line, inventory: Inventory, fits: Fits) -> str:
    """One change that is enough, as a sentence; empty: none of those tried is."""
    found = _all_nearest(_of_line(line), inventory, fits)
    if found:
        (change, _), fitting = min(
            found, key=lambda pair: inf if pair[1].step_seconds is None else pair[1].step_seconds
        )
        return f"{change} would fit, as {fitting.name}{_seconds(fitting)}"
    nodes = _fewest_nodes(lambda count: fits(line, replace(inventory, num_nodes=count)), inventory)
    more = f"{nodes} nodes like these would fit it" if nodes else ""
    others = _all_nearest(_of_training(line, inventory), inventory, fits)
    known = " or ".join(f"{change} as {plan.name}{_room(plan)}{_seconds(plan)}" for (change, _), plan in others)
    return ", or ".join(each for each in (more, known and f"to train something else, {known} would fit") if each)


def _room(fitting: FittingPlan) -> str:
    return f" with {format_bytes(fitting.need_bytes)} a rank" if fitting.need_bytes else ""


def _seconds(fitting: FittingPlan) -> str:
    return "" if fitting.step_seconds is None else f", {format_step(fitting.step_seconds)} a step by forecast"


def _all_nearest(keys: Iterator[list[Change]], inventory: Inventory, fits: Fits) -> list[tuple[Change, FittingPlan]]:
    """The first value of each key with which something fits."""
    pairs = (((value, fitting) for value in values if (fitting := fits(value[1], inventory))) for values in keys)
    return [pair for each in pairs if (pair := next(each, None))]


def _of_line(line: Line) -> Iterator[list[Change]]:
    """What the line fixes, let loose key by key, the nearest values first; keys that cost least time first.

    Nothing but time is given up: what is trained stays the same to the rounding of sums.
    """
    train, memory = line.train, line.train.memory

    def of_memory(**changes: object) -> Line:
        return replace(line, train=replace(train, memory=replace(memory, **changes)))  # type: ignore[arg-type]  # words of its keys

    if isinstance(requested := train.mesh.micro_batch, int):
        meshes = (replace(train.mesh, micro_batch=size) for size in divisors(requested)[-2::-1])
        yield [
            (f"train.mesh.micro_batch = {mesh.micro_batch}", replace(line, train=replace(train, mesh=mesh)))
            for mesh in meshes
        ]
    if memory.loss_chunks == 1:
        yield [('train.memory.loss_chunks = "auto"', of_memory(loss_chunks="auto"))]
    words, word = list(SHARES), memory.activation_checkpointing
    more = words[words.index(word) + 1 :] if word in words else [] if word == "auto" else words[-1:]
    yield [
        (f'train.memory.activation_checkpointing = "{word}"', of_memory(activation_checkpointing=word)) for word in more
    ]
    if train.strategy not in ("auto", "explicit"):
        yield [('train.strategy = "auto"', replace(line, train=replace(train, strategy="auto")))]
    if memory.offload == "none":
        yield [('train.memory.offload = "auto"', of_memory(offload="auto"))]


def _of_training(line: Line, inventory: Inventory) -> Iterator[list[Change]]:
    """What changes the numbers that are trained: precision, and an elementwise rule that keeps less."""
    if choose_precision(line, inventory) == "fp32":
        word: Precision = "fp16" if inventory.gpus and not inventory.gpus.has_bf16 else "bf16"
        changed = replace(line, train=replace(line.train, precision=word))
        yield [(f'train.precision = "{word}"', changed)]
    rules = {'{ rule = "sgd", momentum = 0.9 }': {"rule": "sgd", "momentum": 0.9}, '{ rule = "sgd" }': {"rule": "sgd"}}
    tables = {words: line.optimizer | {GROUP: rule} for words, rule in rules.items()}
    kept = moment_bytes(line.optimizer)
    yield [
        (
            f"optimizer.{GROUP} = {words}, {less} bytes a parameter where there are {kept},",
            replace(line, optimizer=table),
        )
        for words, table in tables.items()
        if (less := moment_bytes(table)) < kept
    ]


def _fewest_nodes(fits: Callable[[int], object], inventory: Inventory) -> int | None:
    """Nodes found by doubling, then by halving the gap; None: even the most do not help."""
    least, most = inventory.num_nodes, inventory.num_nodes * 2
    while not fits(most):
        least, most = most, most * 2
        if most > MOST_NODES:
            return None
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (least, middle) if fits(middle) else (middle, most)
    return most
