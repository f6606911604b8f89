"""Forward passes that wait for outstanding updates: each part of a model for those of its own parameters alone."""

import json
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from gangline.errors import ConfigError
from gangline.optim.executors.exchange import UpdateExchange

ApplyFirst = Callable[[int], None]
"""Applies so many buckets of the outstanding step, as far as they are not; none is outstanding: does nothing."""


class ForwardOverlap:
    """Hooks of one model. Unit 0 is what lies outside the others, which is complete as the model's own pass begins.

    Buckets come in the order of first use, as one rank saw it before the first step. Which units a later pass calls,
    and in what order, changes when this rank applies a bucket, but not the order of buckets. A unit that this rank had
    not called by then may be used in another way than by its call, so the model's own pass waits for it at its start.
    """

    def __init__(
        self, model: nn.Module, units: Sequence[nn.Module], buckets: Sequence[frozenset[Tensor]], apply: ApplyFirst
    ) -> None:
        """Args:
        model: Whose own forward pass begins with unit 0, and ends with all buckets.
        units: Modules of it; a parameter of one is used while that module, or another that holds it, computes.
        buckets: Parameters of each.
        apply: Is called before each unit, and at the end.

        Raises:
            ConfigError: Units or parameters are not of the model.
        """
        inside = set(model.modules())
        if foreign := [type(module).__name__ for module in units if module not in inside]:
            raise ConfigError(f"units of a forward pass are modules of its {type(model).__name__}, found {foreign[:8]}")
        held = [_outside(model, units), *(frozenset(module.parameters()) for module in units)]
        if lost := frozenset[Tensor]().union(*buckets) - frozenset[Tensor]().union(*held):
            shapes = sorted(str(tuple(tensor.shape)) for tensor in lost)
            raise ConfigError(
                f"the forward pass of {type(model).__name__} can wait for its own parameters alone, and this optimizer "
                f"updates {len(lost)} others, of shapes {', '.join(shapes[:8])}; pass the model that has them all"
            )
        self._uses = [[at for at, bucket in enumerate(buckets) if bucket & one] for one in held]
        self._model, self._apply, self._seen = model, apply, dict[int, None]()
        self._first: list[int] = []
        """Number of buckets of that order that each unit waits for."""
        self.order: list[int] = []
        """Buckets in the order in which they are sent; empty before the first step."""
        _around(model, before=partial(self._before, 0), after=self._apply_all)
        for at, unit in enumerate(units, start=1):
            _around(unit, before=partial(self._before, at))
        model.register_state_dict_pre_hook(self._before_state)  # type: ignore[no-untyped-call]  # torch leaves it untyped
        model.register_load_state_dict_pre_hook(self._before_state)  # type: ignore[no-untyped-call]  # likewise

    def agree(self, exchanges: Iterable[UpdateExchange], device: torch.device) -> None:
        """Fix the order for all ranks of `exchanges`, as the first of them saw it; collective.

        Raises:
            ConfigError: This rank did not call the model, though it takes a step.
        """
        if 0 not in self._seen:
            raise ConfigError(
                f"overlap_forward: wanted calls of {type(self._model).__name__}, whose hooks wait for updates, found a "
                "step without one; train by calling the model, or leave overlap off"
            )
        seen = json.dumps([*self._seen])
        for exchange in exchanges:
            seen = exchange.texts(seen, device)[0]
        units = dict.fromkeys([0, *json.loads(seen), *range(len(self._uses))])
        self.order = [*dict.fromkeys(bucket for unit in units for bucket in self._uses[unit])]
        place = {bucket: at for at, bucket in enumerate(self.order)}
        first = [max((place[bucket] + 1 for bucket in used), default=0) for used in self._uses]
        first[0] = max(each for unit, each in enumerate(first) if unit == 0 or unit not in self._seen)
        self._first = first

    def _before_state(self, module: nn.Module, *_: object) -> None:
        if module is self._model:
            self._apply_all()

    def _apply_all(self) -> None:
        self._apply(len(self.order))

    def _before(self, unit: int) -> None:
        if self.order:
            self._apply(self._first[unit])
        else:
            self._seen[unit] = None


def _outside(model: nn.Module, units: Sequence[nn.Module]) -> frozenset[Tensor]:
    """Parameters that modules outside of all `units` hold."""
    inside = {inner for unit in units for inner in unit.modules()}
    outer = [module for module in model.modules() if module not in inside]
    return frozenset(parameter for module in outer for parameter in module.parameters(recurse=False))


def _around(module: nn.Module, *, before: Callable[[], None], after: Callable[[], None] | None = None) -> None:
    """Call `before` ahead of every other hook of `module`, and `after` once its forward pass returned.

    A copy of the module has its hooks, but is another one. Compiled, these calls are outside of what is compiled.
    """

    @torch.compiler.disable  # type: ignore[untyped-decorator]  # torch leaves it untyped
    def begin(called: nn.Module, _: object) -> None:
        if called is module:
            before()

    @torch.compiler.disable  # type: ignore[untyped-decorator]  # torch leaves it untyped
    def end(called: nn.Module, *_: object) -> None:
        if called is module and after is not None:
            after()

    compiled = module._compiled_call_impl  # noqa: SLF001  # its hooks would be compiled, too
    if compiled is None:
        module.register_forward_pre_hook(begin, prepend=True)
        if after is not None:
            module.register_forward_hook(end)
        return

    def call(*args: Any, **kwargs: Any) -> Any:
        before()
        found = compiled(*args, **kwargs)
        if after is not None:
            after()
        return found

    module._compiled_call_impl = call  # noqa: SLF001  # see above
