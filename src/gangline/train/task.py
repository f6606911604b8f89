"""Interface of a task, the user's part of a training. Importing it does not import torch.

A task is a class without arguments to its constructor. It must have

    build_model(options) -> Module       `options` is the table [model]; built on the meta device or anywhere
    build_data(split, options) -> data   `split` is "train" or "holdout"; `len(data)`, `data[i]` -> dict of tensors
    loss(outputs, batch) -> Loss         a sum and its weight

and may have `hints`, `build_optimizer(model, options)`, `evaluate(model, batch) -> {name: (sum, weight)}`,
`metric_units`, `example(options)` (a sample of the right shapes, for the planner) and `export_names() -> {name in the
model: name in a published one}`. A batch is a dict of tensors: keys that `forward` takes go to it, all go to `loss`.
"""

import importlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol, cast

from gangline.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor, nn

Batch = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Loss:
    """Loss of some samples as a sum and its weight: the mean over any split of a batch is sum(total) / sum(weight)."""

    total: "Tensor"
    weight: "float | Tensor"
    """What `total` was summed over: samples, tokens, or sums of their weights."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ParallelHints:
    """Hints for splitting a model across ranks; every field has a default."""

    blocks: str | None = None
    """Pattern of the repeated modules, e.g. `layers.*`; None: the members of the longest ModuleList."""
    tensor: Mapping[str, str] = field(default_factory=dict)
    """Module pattern to rule word of tensor parallelism, e.g. {"layers.*.wo": "rowwise:heads"}."""
    embed: str | None = None
    """Method or module that computes the input of the first block from the batch; for pipelines."""
    head: str | None = None
    """Method or module that computes the outputs from the last block: `forward` is head(blocks(embed(**batch)))."""
    sequence: Mapping[str, int] = field(default_factory=dict)
    """Dimension that context parallelism cuts, by key of the batch, e.g. {"tokens": 1, "targets": 1}."""
    positions: bool = True
    """If sequences are cut, pass `positions`, the position of each token, to `forward`; False: it needs none."""
    experts: str | None = None
    """Pattern of the modules that hold experts, e.g. `layers.*.moe.experts`."""
    skips: bool = False
    """Some steps use only some blocks or parameters; replicas then look for the unused ones in every step."""


class Task(Protocol):
    """The methods that a user's task must have; the module's docstring lists the optional ones."""

    def build_model(self, options: dict[str, Any]) -> "nn.Module":
        """The model; `options` is the table [model] of the line. Called on the meta device, or on any other."""
        ...

    def build_data(self, split: str, options: dict[str, Any]) -> Any:
        """Samples of `split`, "train" or "holdout": `len(data)`, and `data[i]` as a dict of tensors."""
        ...

    def loss(self, outputs: Any, batch: Batch) -> Loss:
        """Loss of one batch as a sum and its weight; `outputs` is what the model returned."""
        ...


REQUIRED = ("build_model", "build_data", "loss")


def import_code(module_name: str, key: str) -> ModuleType:
    """Import a module of the code layer, which is on sys.path.

    Raises:
        ConfigError: There is no such module; the message begins with `key`.
    """
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise ConfigError(f"{key}: no module {module_name!r} in the code layer") from error


def load_task(name: str) -> Task:
    """Import `module:Class` from the code layer, which is on sys.path, and create an instance.

    Raises:
        ConfigError: There is no such module or class, or a required method is missing.
    """
    module_name, _, class_name = name.partition(":")
    module = import_code(module_name, f"project.task {name!r}")
    cls = getattr(module, class_name, None)
    if cls is None:
        found = sorted(k for k, v in vars(module).items() if inspect.isclass(v) and v.__module__ == module_name)
        raise ConfigError(f"project.task {name!r}: {module_name} has no {class_name!r}; its classes are {found}")
    if missing := [method for method in REQUIRED if not callable(getattr(cls, method, None))]:
        raise ConfigError(f"project.task {name!r}: wanted methods {list(REQUIRED)}, {missing} are missing")
    return cast(Task, cls())


def hints_of(task: Task) -> ParallelHints:
    """Hints of the task, or the defaults. Raises `ConfigError` if they are of another type."""
    hints = getattr(task, "hints", None) or ParallelHints()
    if not isinstance(hints, ParallelHints):
        raise ConfigError(f"hints of {type(task).__name__}: wanted gangline.train.ParallelHints, found {hints!r}")
    return hints


def export_names_of(task: Task) -> dict[str, str]:
    """Names of tensors in a published model, by their name in the model; empty: all keep their names.

    Raises:
        ConfigError: `export_names` returned anything but names by name.
    """
    export_names = getattr(task, "export_names", None)
    names = export_names() if callable(export_names) else {}
    if not isinstance(names, Mapping) or not all(isinstance(each, str) for pair in names.items() for each in pair):
        raise ConfigError(
            f"export_names of {type(task).__name__}: wanted a dict of names by name, found {names!r:.200}"
        )
    return dict(names)


def forward_names(model: "nn.Module") -> frozenset[str] | None:
    """Names of the arguments of `forward`; None: it accepts any."""
    parameters = inspect.signature(model.forward).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return frozenset(parameter.name for parameter in parameters)
