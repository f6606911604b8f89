"""Rules of tensor parallelism: the word of each module, and the degrees that it allows.

A word says how a module is cut, not how tensors are laid out. It may name pieces that must stay whole: `colwise:heads`
cuts between the pieces that the attribute `heads` of the parent module counts. No mesh is needed, and the model may
be on the meta device.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd

from torch import nn

from gangline.errors import ConfigError
from gangline.planner.layouts.degrees import NO_RULES, degrees_that_work
from gangline.train.parallel.model_parts import join, matches
from gangline.train.task import ParallelHints

WORDS: Mapping[str, tuple[type[nn.Module], ...]] = {
    "colwise": (nn.Linear, nn.Embedding),
    "colwise_gather": (nn.Linear, nn.Embedding),
    "colwise_loss": (nn.Linear,),
    "rowwise": (nn.Linear,),
    "embed": (nn.Embedding,),
    "sequence": (nn.Module,),
    "local": (nn.Module,),
}
"""Word to the modules that may have it.

colwise         each peer computes a part of the output features; they stay split until a `rowwise`
colwise_gather  the same, gathered at once
colwise_loss    the same for logits; the cross entropy is computed without gathering them
rowwise         takes a part of the input features; the outputs of the peers are summed
embed           each peer holds a part of the vocabulary
sequence        works on single positions (norms, dropout): between blocks each peer has a part of every sequence
local           works on the piece of this peer (norms of single heads): whole weights, gradients summed
"""


@dataclass(frozen=True, slots=True)
class TensorRule:
    """How one module is cut."""

    word: str
    pieces: str | None = None
    """Attribute of the parent module: number of the pieces that must stay whole."""


def rule_of(name: str, hints: ParallelHints) -> TensorRule | None:
    """Rule of the first pattern that matches the module `name`; None: it is not cut.

    Raises:
        ConfigError: The word is unknown.
    """
    for pattern, text in hints.tensor.items():
        if matches(name, pattern):
            word, _, pieces = text.partition(":")
            if word not in WORDS:
                raise ConfigError(f"hints.tensor {pattern!r}: wanted one of {sorted(WORDS)}, found {text!r}")
            return TensorRule(word, pieces or None)
    return None


def is_sequential(hints: ParallelHints) -> bool:
    """Whether activations between blocks are cut along the sequence."""
    return any(text == "sequence" for text in hints.tensor.values())


def common_degree(model: nn.Module, hints: ParallelHints) -> int:
    """Number that every tensor-parallel degree of `model` must divide; 0: it has no rules and cannot be cut.

    Raises:
        ConfigError: A pattern matches nothing, a word does not fit its module, or a shared weight is cut in two ways.
    """
    return gcd(*(number for _, number, _ in _counts(model, _checked(model, hints))))


def require_degree(model: nn.Module, hints: ParallelHints, degree: int) -> None:
    """Refuse a model that cannot be cut into `degree` parts.

    Raises:
        ConfigError: With module, numbers and degrees that work, or for the reasons of `common_degree`.
    """
    rules = _checked(model, hints)
    if not rules:
        raise ConfigError(f"train.mesh.tp = {degree}: {NO_RULES}")
    for name, number, what in _counts(model, rules):
        if number % degree:
            works = degrees_that_work(common_degree(model, hints))
            raise ConfigError(
                f"train.mesh.tp = {degree}: {name} ({rules[name].word}) has {number} {what}, which do not divide into "
                f"{degree}; {works}"
            )


def _checked(model: nn.Module, hints: ParallelHints) -> dict[str, TensorRule]:
    """Name of each module with a rule to that rule."""
    modules = dict(model.named_modules())
    for pattern in hints.tensor:
        if not any(matches(name, pattern) for name in modules):
            near = sorted(name for name in modules if name.count(".") == pattern.count("."))
            raise ConfigError(f"hints.tensor {pattern!r} matches no module; on that level there are {near[:12]}")
    rules = {name: rule for name in modules if name and (rule := rule_of(name, hints)) is not None}
    for name, rule in rules.items():
        if not isinstance(modules[name], WORDS[rule.word]):
            fits = " or ".join(each.__name__ for each in WORDS[rule.word])
            raise ConfigError(f"hints.tensor: {rule.word} is for {fits}, {name} is a {type(modules[name]).__name__}")
    _check_shared(modules, rules)
    return rules


def _check_shared(modules: Mapping[str, nn.Module], rules: Mapping[str, TensorRule]) -> None:
    """A weight that two modules share must be the same piece for both."""
    owners: dict[int, str] = {}
    for name, module in modules.items():
        for weight in module.parameters(recurse=False):
            first = owners.setdefault(id(weight), name)
            if _cut_of(modules[first], rules.get(first)) != _cut_of(module, rules.get(name)):
                raise ConfigError(
                    f'hints.tensor: {first} and {name} share a weight and would cut it differently; use "embed" for an '
                    'embedding and "colwise_loss" for the head that shares its weight'
                )


def _cut_of(module: nn.Module, rule: TensorRule | None) -> int | None:
    """Dimension of the weight that is cut."""
    if rule is None or rule.word in ("sequence", "local"):
        return None
    return int((rule.word == "rowwise") != isinstance(module, nn.Embedding)) if rule.word != "embed" else 0


def _counts(model: nn.Module, rules: Mapping[str, TensorRule]) -> list[tuple[str, int, str]]:
    """(module, number, of what): the degree must divide each number."""
    found = []
    for name, rule in rules.items():
        holder, module = name.rpartition(".")[0], model.get_submodule(name)
        if (dimension := _cut_of(module, rule)) is not None:
            found.append((name, module.get_parameter("weight").shape[dimension], _words_for(module, dimension)))
        if rule.pieces is not None:
            number = getattr(model.get_submodule(holder), rule.pieces, None)
            if not isinstance(number, int) or number < 1:
                raise ConfigError(
                    f"hints.tensor: {rule.word}:{rule.pieces} of {name} wants a whole number as {rule.pieces!r} of "
                    f"{join(holder) or 'the model'}, found {number!r}"
                )
            found.append((name, number, rule.pieces))
    return found


def _words_for(module: nn.Module, dimension: int) -> str:
    if isinstance(module, nn.Embedding):
        return "features" if dimension else "words"
    return "input features" if dimension else "output features"
