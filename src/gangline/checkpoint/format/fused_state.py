"""A checkpoint of a fused model as one of the split model, or the other way round: tensors and numbers by new names.

Weights and state in the layout of a parameter are rows, cut out or joined. State of whole matrices, which names have a
fragment for, goes by the name of its part. State of one element, as counters of steps are, is that of each part.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from gangline.checkpoint.format.derived_index import Run, cut, join, whole
from gangline.checkpoint.format.fused_names import FusedPart, Fusion, place
from gangline.checkpoint.format.index import FRAGMENT, MODEL, OPTIMIZER, Index, StoredTensor
from gangline.errors import ConfigError

Numbers = dict[str, Any]


@dataclass(slots=True)
class ConvertedState:
    """What a load reads in place of the index and the numbers of a checkpoint."""

    tensors: dict[str, StoredTensor]
    numbers: Numbers
    either: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """State of a fused parameter to the same by fragment: both have all of it, and the optimizer keeps one of them."""
    equal: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """State of one element to the stored tensors that must have its value."""
    changes: tuple[str, ...] = ()
    """A line for each parameter that was split or joined."""

    @property
    def index(self) -> Index:
        """Index of all its tensors."""
        return Index(tensors=self.tensors)

    def unneeded(self, is_wanted: Mapping[str, bool]) -> set[str]:
        """Names that need not be wanted, as the optimizer keeps the same in the other form."""
        other = {
            name
            for fused, parts in self.either.items()
            for name in (parts if is_wanted.get(fused) else (fused,) if all(map(is_wanted.get, parts)) else ())
        }
        return other | {name for names in self.equal.values() for name in names}


def convert(index: Index, numbers: Numbers, fusions: Sequence[Fusion]) -> ConvertedState:
    """
    Raises:
        ConfigError: Shapes do not fit the split rule or each other, a state belongs to a fused matrix as a whole, parts
            have other states or numbers than their neighbours, or two tensors would have one name.
    """
    state = ConvertedState(dict(index.tensors), dict(numbers), changes=tuple(map(str, fusions)))
    stored = {name for each in fusions for name in each.stored}
    own, paths = _by_parameter(index, stored), _paths(numbers, stored)
    for fusion in fusions:
        tensors = {name: own[name] for name in fusion.stored}
        for name, suffixes in tensors.items():
            for suffix in suffixes:
                del state.tensors[_name(name, suffix)]
        shapes = {name: tensors[name][MODEL, "", ""].shape for name in fusion.stored}
        if fusion.is_stored_fused:
            parts = _parts(fusion, shapes[fusion.fused][:1])
            made, names = dict(_split(fusion, parts, tensors[fusion.fused])), [part.name for part in parts]
        else:
            made, names = _joined(fusion, _fitting_parts(fusion, shapes), tensors, state), [fusion.fused]
        if twice := sorted(made.keys() & index.tensors.keys()):
            raise ConfigError(f"{place(fusion.rule)}: the checkpoint has {twice[0]} already, and would get another")
        state.tensors.update(made)
        _convert_numbers(state.numbers, fusion, names, paths)
    return state


_Suffix = tuple[str, str, str]
"""Head, fragment and state: `("optim/", "q", "factor_left")`, `("model/", "", "")`."""


def _by_parameter(index: Index, names: set[str]) -> dict[str, dict[_Suffix, StoredTensor]]:
    found: dict[str, dict[_Suffix, StoredTensor]] = {name: {} for name in names}
    for stored, tensor in index.tensors.items():
        if stored.startswith(MODEL) and (name := stored.removeprefix(MODEL)) in names:
            found[name][MODEL, "", ""] = tensor
        elif stored.startswith(OPTIMIZER):
            owner, _, state = stored.removeprefix(OPTIMIZER).rpartition("/")
            name, _, fragment = owner.partition(FRAGMENT)
            if name in names:
                found[name][OPTIMIZER, fragment, state] = tensor
    return found


def _name(parameter: str, suffix: _Suffix) -> str:
    head, fragment, state = suffix
    return head + parameter + (FRAGMENT + fragment if fragment else "") + ("/" + state if state else "")


def _split(
    fusion: Fusion, parts: Sequence[FusedPart], tensors: dict[_Suffix, StoredTensor]
) -> Iterator[tuple[str, StoredTensor]]:
    """Tensors of the parts, of those of a fused parameter."""
    shape = tensors[MODEL, "", ""].shape
    fragments = {fused_part.fragment: fused_part for fused_part in parts}
    for suffix, tensor in tensors.items():
        head, fragment, state = suffix
        stored = _name(fusion.fused, suffix)
        if fragment:
            if fragment not in fragments:
                raise ConfigError(f"{place(fusion.rule)}: {stored} is of none of its parts, {', '.join(fragments)}")
            yield _name(fragments[fragment].name, (head, "", state)), whole(stored, tensor)
        elif tensor.shape == shape:
            for part in parts:
                runs = _runs(part, to_fused=False)
                yield _name(part.name, suffix), cut(stored, tensor, runs, drops_dim=fusion.is_stack)
        elif prod(tensor.shape) == 1:
            yield from ((_name(part.name, suffix), whole(stored, tensor)) for part in parts)
        else:
            raise ConfigError(
                f"{place(fusion.rule)}: {stored} of shape {tensor.shape} is of the fused matrix as a whole and has no "
                "parts; train the fused model with a route that splits it, or start from its weights alone"
            )


def _joined(
    fusion: Fusion, parts: Sequence[FusedPart], tensors: dict[str, dict[_Suffix, StoredTensor]], state: ConvertedState
) -> dict[str, StoredTensor]:
    """Tensors of the fused parameter, of those of its parts."""
    first = fusion.names[0]
    for name in fusion.names:
        if differ := sorted(state for _, _, state in tensors[name].keys() ^ tensors[first].keys()):
            raise ConfigError(f"{place(fusion.rule)}: of {first} and {name} one alone has {', '.join(differ)}")
    shapes = {name: tensors[name][MODEL, "", ""].shape for name in fusion.names}
    made: dict[str, StoredTensor] = {}
    for suffix in tensors[first]:
        of = {name: tensors[name][suffix] for name in fusion.names}
        if len({tensor.dtype for tensor in of.values()}) > 1:
            raise ConfigError(f"{place(fusion.rule)}: dtypes of {_name('*', suffix)} differ between {list(of)}")
        head, fragment, kind = suffix
        fused, by_fragment = _name(fusion.fused, suffix), {}
        if head == OPTIMIZER and not fragment:
            by_fragment = {
                _name(fusion.fused, (head, part.fragment, kind)): whole(_name(part.name, suffix), of[part.name])
                for part in parts
            }
        if all(of[name].shape == shapes[name] for name in of):
            runs = [(_name(part.name, suffix), of[part.name], _runs(part, to_fused=True)) for part in parts]
            made[fused] = join(runs, adds_dim=fusion.is_stack)
        elif all(prod(tensor.shape) == 1 for tensor in of.values()):
            made[fused] = whole(_name(first, suffix), of[first])
            state.equal[fused] = tuple(_name(name, suffix) for name in of)
            state.tensors.update((_name(name, suffix), tensor) for name, tensor in of.items())
        if fused in made and by_fragment:
            state.either[fused] = tuple(by_fragment)
        made.update(by_fragment)
    return made


def _parts(fusion: Fusion, shape: tuple[int, ...]) -> tuple[FusedPart, ...]:
    if not shape:
        raise ConfigError(f"{place(fusion.rule)}: {fusion.fused} has no rows, it is a single number")
    return fusion.parts(shape[0])


def _fitting_parts(fusion: Fusion, shapes: dict[str, tuple[int, ...]]) -> tuple[FusedPart, ...]:
    """Parts of stored tensors, whose shapes must be those that the rule gives them."""
    texts = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
    rows = [1 if fusion.is_stack else shape[0] if shape else 0 for shape in shapes.values()]
    parts = _parts(fusion, (sum(rows),))
    wanted = [sum(stop - start for start, stop in part.rows) for part in parts]
    inner = {shape if fusion.is_stack else shape[1:] for shape in shapes.values()}
    if rows != wanted or len(inner) > 1:
        raise ConfigError(
            f"{place(fusion.rule)}: parts of {fusion.fused} have {' and '.join(map(str, wanted))} rows and else one "
            f"shape, found {texts}"
        )
    return parts


def _runs(part: FusedPart, *, to_fused: bool) -> list[Run]:
    runs: list[Run] = []
    own = 0
    for start, stop in part.rows:
        runs.append((own, start, stop - start) if to_fused else (start, own, stop - start))
        own += stop - start
    return runs


def _paths(numbers: Numbers, names: set[str]) -> dict[str, list[tuple[str, str]]]:
    """Head and key of each number of these parameters: `param_groups.<name>.<key>`, `state.<name>.<key>`."""
    found: dict[str, list[tuple[str, str]]] = {name: [] for name in names}
    for path in numbers:
        head, _, rest = path.partition(".")
        name, _, key = rest.rpartition(".")
        if name in names:
            found[name].append((head, key))
    return found


def _convert_numbers(
    numbers: Numbers, fusion: Fusion, names: Sequence[str], paths: Mapping[str, Sequence[tuple[str, str]]]
) -> None:
    """Those of parts that are joined must be equal."""
    made: Numbers = {}
    for stored in fusion.stored:
        for head, key in paths[stored]:
            value = numbers.pop(f"{head}.{stored}.{key}")
            for name in names:
                if made.setdefault(f"{head}.{name}.{key}", value) != value:
                    raise ConfigError(
                        f"{place(fusion.rule)}: {key} of {stored} is {value!r}, that of {fusion.stored[0]} is "
                        f"{made[f'{head}.{name}.{key}']!r}; parts that become one parameter have one of each"
                    )
    numbers.update(made)
