"""Parts of a model by name: patterns that name modules, the repeated blocks, and the embedding and head around them."""

import fnmatch
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

from torch import nn

from gangline.errors import ConfigError
from gangline.spec.profile import PipelinePieces
from gangline.train.runtime.initialization import ROOT
from gangline.train.task import ParallelHints


def matches(name: str, pattern: str) -> bool:
    """Whether the dotted `name` matches; `*` matches one part of the name, or some of its letters."""
    parts, wanted = name.split("."), pattern.split(".")
    return len(parts) == len(wanted) and all(map(fnmatch.fnmatchcase, parts, wanted))


def listed(names: Sequence[str], *, most: int = 8) -> str:
    """The first names, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def join(*parts: str) -> str:
    """Name of a module inside another; the whole model has the empty name."""
    return ".".join(part for part in parts if part)


ADVICE = (
    'give the task hints = ParallelHints(embed="embed", head="head"): names of two methods or modules of the model, '
    "such that forward(...) is head(blocks(embed(...)))"
)


@dataclass(frozen=True, slots=True)
class EmbedAndHead:
    """Paths outside the blocks, by the end that uses them."""

    embed: frozenset[str]
    head: frozenset[str]
    either: frozenset[str]
    """Modules without parameters: every stage keeps them."""


def find_embed_and_head(model: nn.Module, blocks: list[str], hints: ParallelHints) -> EmbedAndHead:
    """Assign everything outside the blocks of `model` to embedding or head.

    Raises:
        ConfigError: The hints do not name both, or a parameter belongs to both or to neither.
    """
    _require_untied(model)
    outside = dict(_outside(model, blocks))
    claims = {}
    for key, name in (("embed", hints.embed), ("head", hints.head)):
        if name is None:
            raise ConfigError(f"hints.{key}: a pipeline needs it, and {type(model).__name__} has none; {ADVICE}")
        claims[key] = {path for path in outside if _uses(model, name, path, key)}
    weighty = {path for path, has_parameters in outside.items() if has_parameters}
    if tied := sorted(claims["embed"] & claims["head"] & weighty):
        raise ConfigError(
            f"{tied[0]} is used by both {hints.embed} and {hints.head}: first and last stage cannot share weights; "
            "give each its own, or use fsdp"
        )
    if orphans := sorted(weighty - claims["embed"] - claims["head"]):
        raise ConfigError(
            f"{orphans[0]} is used by neither {hints.embed} nor {hints.head} of {type(model).__name__}; "
            "a method shows what it uses by naming it: self.<name>"
        )
    free = frozenset(outside) - weighty
    return EmbedAndHead(frozenset(claims["embed"]) | free, frozenset(claims["head"]) | free, free)


def pipeline_pieces(model: nn.Module, blocks: Mapping[str, nn.Module], ends: EmbedAndHead) -> PipelinePieces:
    """Paths of the blocks and of both ends, with their parameters."""
    named = {name: parameter.numel() for name, parameter in model.named_parameters()}

    def count(paths: Iterable[str]) -> int:
        return sum(size for name, size in named.items() if any(f"{name}.".startswith(f"{path}.") for path in paths))

    return PipelinePieces(
        blocks=tuple(blocks), block_parameters=tuple(sum(e.numel() for e in b.parameters()) for b in blocks.values()),
        embed=tuple(sorted(ends.embed)), embed_parameters=count(ends.embed),
        head=tuple(sorted(ends.head)), head_parameters=count(ends.head),
    )  # fmt: skip


def kept_of(blocks: Collection[str], ends: EmbedAndHead, *, is_first: bool, is_last: bool) -> set[str]:
    """Paths of the model that a stage with these `blocks` holds."""
    embed = ends.embed if is_first else frozenset()
    return {*blocks, *ends.either, *embed, *(ends.head if is_last else ())}


def _require_untied(model: nn.Module) -> None:
    """Refuse weights with two names: they would become two weights on different stages.

    Raises:
        ConfigError: There are such weights.
    """
    names: dict[nn.Parameter, str] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if (first := names.setdefault(parameter, name)) != name:
            raise ConfigError(
                f"{name} of {type(model).__name__} is {first} under another name: stages of a pipeline cannot share "
                "weights; give each its own, or use fsdp"
            )


def resolve(model: nn.Module, name: str, key: str) -> Callable[..., Any]:
    """Method or module of `model` that a hint names.

    Raises:
        ConfigError: There is none.
    """
    found: Any = model
    for part in name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        names = sorted(child for child, _ in model.named_children())
        raise ConfigError(
            f"hints.{key} = {name!r}: {type(model).__name__} has no such method or module; its modules are {names}"
        )
    return found  # type: ignore[no-any-return]  # what getattr found


def _outside(module: nn.Module, blocks: list[str], path: str = "") -> Iterator[tuple[str, bool]]:
    """Path of each parameter, buffer or module that is and contains no block, and whether it has parameters."""
    prefix = f"{path}." if path else ""
    for name, _ in module.named_parameters(recurse=False):
        yield prefix + name, True
    for name, _ in module.named_buffers(recurse=False):
        yield prefix + name, False
    for name, child in module.named_children():
        if any(block.startswith(f"{prefix}{name}.") for block in blocks):
            yield from _outside(child, blocks, prefix + name)
        elif prefix + name not in blocks:
            yield prefix + name, any(True for _ in child.parameters())


def _uses(model: nn.Module, end: str, path: str, key: str) -> bool:
    found = resolve(model, end, key)
    if isinstance(found, nn.Module):
        return f"{path}.".startswith(f"{end}.") or end.startswith(f"{path}.")
    return path.rpartition(".")[2] in _names(model, found, set())


def _names(model: nn.Module, method: Any, seen: set[str]) -> set[str]:
    """All names in the code of `method`, and of the model's methods that it calls, base classes included."""
    function = getattr(method, "__func__", method)
    names = set(_code_names(function.__code__)) if hasattr(function, "__code__") else set()
    for name in names - seen:
        seen.add(name)
        for inner in (vars(base)[name] for base in type(model).__mro__ if name in vars(base)):
            if callable(inner) and not hasattr(nn.Module, name):
                names |= _names(model, inner, seen)
    return names


def _code_names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code_names(constant)


def find_blocks(model: nn.Module, hints: ParallelHints) -> list[tuple[str, nn.Module]]:
    """Named blocks of `model`: those that `hints.blocks` matches, else the members of the longest ModuleList."""
    if hints.blocks is not None:
        found = [(name, module) for name, module in model.named_modules() if matches(name, hints.blocks)]
        if not found:
            names = sorted({name.split(".")[0] for name, _ in model.named_modules() if name})
            raise ConfigError(f"hints.blocks {hints.blocks!r} matches no module; the model's children are {names}")
        return found
    lists = [(name, each) for name, each in model.named_modules() if isinstance(each, nn.ModuleList)]
    name, longest = max(lists, key=lambda pair: len(pair[1]), default=(ROOT, nn.ModuleList()))
    return [(f"{name}.{number}" if name else number, block) for number, block in longest.named_children()]
