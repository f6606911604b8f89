"""The smallest change to a line, else to what is there, under which something fits: what a refusal names."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from gangline.spec.inventory import Inventory
from gangline.spec.line import Line
from gangline.spec.profile import ModelProfile
from gangline.spec.site import Site

MOST_NODES = 1024
Fits = Callable[[Line, Site, Inventory, ModelProfile | None], str]
"""Name of the plan that would be chosen; empty: nothing fits."""


def smallest_change(line: Line, site: Site, inventory: Inventory, profile: ModelProfile | None, *, fits: Fits) -> str:
    """One change that is enough, as a sentence; empty: none of those tried is."""
    for key, changed in _of_line(line):
        if name := fits(changed, site, inventory, profile):
            return f"{key} would fit, as {name}"
    nodes = _fewest_nodes(lambda count: fits(line, site, replace(inventory, num_nodes=count), profile), inventory)
    return f"{nodes} nodes like these would do" if nodes else ""


def _of_line(line: Line) -> Iterator[tuple[str, Line]]:
    """What the line fixes, let loose one by one; what costs least time first."""
    train, memory = line.train, line.train.memory
    if isinstance(train.mesh.micro_batch, int) and train.mesh.micro_batch > 1:
        yield (
            "train.mesh.micro_batch = 1",
            replace(line, train=replace(train, mesh=replace(train.mesh, micro_batch=1))),
        )
    if memory.loss_chunks == 1:
        loose = replace(memory, loss_chunks="auto")
        yield 'train.memory.loss_chunks = "auto"', replace(line, train=replace(train, memory=loose))
    if memory.activation_checkpointing not in ("auto", "full"):
        loose = replace(memory, activation_checkpointing="full")
        yield 'train.memory.activation_checkpointing = "full"', replace(line, train=replace(train, memory=loose))
    if train.strategy not in ("auto", "explicit"):
        yield 'train.strategy = "auto"', replace(line, train=replace(train, strategy="auto"))
    if memory.offload == "none":
        loose = replace(memory, offload="auto")
        yield 'train.memory.offload = "auto"', replace(line, train=replace(train, memory=loose))
    if train.precision == "fp32":
        yield 'train.precision = "bf16"', replace(line, train=replace(train, precision="bf16"))


def _fewest_nodes(fits: Callable[[int], str], inventory: Inventory) -> int | None:
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
