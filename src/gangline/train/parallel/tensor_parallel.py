"""Tensor parallelism: modules cut by rules, embeddings by vocabulary; the code of a model gets plain tensors.

A cut block is checked first: it must compute what it computed whole, forward and backward.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.distributed.tensor.parallel.style import ParallelStyle
from torch.distributed.tensor.placement_types import Placement
from torch.nn.functional import embedding
from torch.utils.weak import WeakIdKeyDictionary

from gangline.errors import ConfigError
from gangline.train.parallel.model_parts import join
from gangline.train.parallel.tensor_rules import TensorRule, is_sequential, rule_of
from gangline.train.runtime.initialization import ROOT
from gangline.train.runtime.torch_compat import compute_losses_in_parts
from gangline.train.task import ParallelHints

Call = Callable[[Tensor], Any]


@dataclass(frozen=True, slots=True)
class TensorCheck:
    """Results of a whole block for some input."""

    name: str
    inputs: Tensor
    results: dict[str, Tensor]

    @staticmethod
    def of(block: nn.Module, name: str, hints: ParallelHints, peers: int) -> "TensorCheck | str":
        """Run the whole block; or the reason why it does not take a random input of (batch, sequence, width)."""
        width = _width(block, name, hints)
        if width is None:
            return f"{name} has no colwise Linear, whose input size is known"
        weight = next(block.parameters())
        with _repeatable(block):
            inputs = torch.randn(2, 2 * peers, width, device=weight.device, dtype=weight.dtype)
            try:
                return TensorCheck(name, inputs, _results(block, block, inputs))
            except Exception as error:  # any error of user code on an unexpected input
                return f"{name} does not take a random input of shape {tuple(inputs.shape)}: {error!r}"

    def compare(self, block: nn.Module, call: Call) -> None:
        """Run the cut block as `call` does; all peers must call.

        Raises:
            ConfigError: It fails, or computes something else.
        """
        with _repeatable(block):
            try:
                found = _results(block, call, self.inputs)
            except (RuntimeError, ValueError, TypeError, IndexError) as error:
                raise ConfigError(
                    f"hints.tensor: {self.name} cannot be computed after it is cut: {error}; take the number of heads "
                    "and other sizes from the tensors, as in view(..., -1, head_width)"
                ) from error
        wrong = [what for what, tensor in self.results.items() if not _alike(found.get(what), tensor)]
        if wrong:
            raise ConfigError(
                f"hints.tensor: {self.name} computes something else after it is cut, seen in {', '.join(wrong[:6])}; "
                'order the rows of a fused projection head by head, and use the word "local" for modules that work '
                "on single heads or other pieces"
            )


def is_real(mesh: DeviceMesh) -> bool:
    """Whether its peers exist; a memory run simulates them."""
    return dist.get_backend(mesh.get_group()) != "fake"


def _width(block: nn.Module, name: str, hints: ParallelHints) -> int | None:
    for inner, module in block.named_modules():
        rule = rule_of(join(name, inner), hints)
        if isinstance(module, nn.Linear) and rule is not None and rule.word.startswith("colwise"):
            return module.in_features
    return None


@contextmanager
def _repeatable(block: nn.Module) -> Iterator[None]:
    """Calls of `block` that give equal results: no dropout, one seed; the generators are put back afterwards."""
    modes = {module: module.training for module in block.modules()}
    block.eval()
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def _results(block: nn.Module, call: Call, inputs: Tensor) -> dict[str, Tensor]:
    """Outputs, and gradients by parameter, as full tensors."""
    inputs = inputs.clone().requires_grad_()
    output = call(inputs)
    output = output[0] if isinstance(output, tuple) else output
    wanted = {
        "its input": inputs,
        **{name: parameter for name, parameter in block.named_parameters() if parameter.requires_grad},
    }
    direction = torch.linspace(-1, 1, output.numel(), device=output.device, dtype=output.dtype).view_as(output)
    grads = torch.autograd.grad(output, list(wanted.values()), direction, allow_unused=True)
    found = {f"the gradient of {name}": grad for name, grad in zip(wanted, grads, strict=True) if grad is not None}
    return {name: whole(each).detach() for name, each in {"its output": output, **found}.items()}


def _alike(found: Tensor | None, wanted: Tensor) -> bool:
    if found is None or found.shape != wanted.shape:
        return False
    share = 1e-3 if wanted.dtype in (torch.float32, torch.float64) else 0.1
    return bool((found - wanted).abs().max() <= share * wanted.abs().max() + 1e-6)


class EmbedParallel(ParallelStyle):
    """Splits an embedding by vocabulary; each rank looks up its own rows, and the sum over ranks is the result."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        table = cast(nn.Embedding, module)
        if table.max_norm is not None or table.scale_grad_by_freq or table.sparse or table.padding_idx is not None:
            raise ConfigError(
                f"hints.tensor: embed is for a plain Embedding, found {table}; remove the word, or these options"
            )
        part = distribute_tensor(table.weight, device_mesh, [Shard(0)], src_data_rank=self.src_data_rank)
        table.weight = nn.Parameter(part, requires_grad=table.weight.requires_grad)
        table.forward = partial(_look_up, table, device_mesh)  # type: ignore[method-assign]  # what a style is for
        return table


def _look_up(table: nn.Embedding, mesh: DeviceMesh, words: Tensor) -> Tensor:
    """Vectors of all `words`, equal on all peers; collective."""
    part = cast(DTensor, table.weight).to_local(grad_placements=[Shard(0)])
    own = words - mesh.get_local_rank() * len(part)
    is_here = (own >= 0) & (own < len(part))
    rows = embedding(own.where(is_here, 0), part) * is_here.unsqueeze(-1)
    return (
        DTensor.from_local(rows, mesh, [Partial()], run_check=False).redistribute(placements=[Replicate()]).to_local()
    )


SEQUENCE = 1
"""Dimension of activations between blocks: batch first."""


class TensorParallel:
    """Cuts one model, unit by unit; all peers make the same calls."""

    def __init__(
        self, hints: ParallelHints, mesh: DeviceMesh, *, on_unchecked: Callable[[str], None] | None = None
    ) -> None:
        """`mesh` has one dimension: the peers that share each module.

        With `on_unchecked` the first block is checked, before and after it is cut; it is called with the reason if that
        is not possible.
        """
        self._hints, self._mesh, self._on_unchecked = hints, mesh, on_unchecked
        self._sequential = is_sequential(hints)
        self._blocks: list[nn.Module] = []
        self._cut: set[str] = set()
        self._parts = WeakIdKeyDictionary()
        """Whole weight to this peer's part, for weights that another module shares."""

    def cut_block(self, block: nn.Module, name: str) -> None:
        """Cut all modules of `block` that have a rule; its weights are whole.

        Raises:
            ConfigError: The cut block computes something else, or sequences are cut and a part has no word.
        """
        check = self._first_check(block, name)
        self._cut_unit(block, name)
        if check is not None:
            check.compare(block, lambda inputs: self._leave(block, (), block(*self._enter(block, (inputs,)))))
        self._blocks.append(block)

    def finish(self, root: nn.Module) -> None:
        """Cut the rest of `root`, after all blocks; sequences are whole before the first block and after the last."""
        self._cut_unit(root, ROOT)
        if self._sequential and self._blocks:
            self._blocks[0].register_forward_pre_hook(self._enter)
            self._blocks[-1].register_forward_hook(self._leave)

    def _first_check(self, block: nn.Module, name: str) -> TensorCheck | None:
        if self._on_unchecked is None or self._blocks or not is_real(self._mesh):
            return None
        check = TensorCheck.of(block, name, self._hints, self._mesh.size())
        if isinstance(check, str):
            self._on_unchecked(check)
            return None
        return check

    def _cut_unit(self, unit: nn.Module, name: str) -> None:
        in_block = name != ROOT
        for inner, module in unit.named_modules():
            full = join(name, inner)
            rule = rule_of(full, self._hints)
            if rule is not None and full not in self._cut:
                self._apply(module, rule, in_block=in_block)
                self._cut.add(full)
            elif in_block and rule is None and self._sequential:
                _require_no_weights(module, full)

    def _apply(self, module: nn.Module, rule: TensorRule, *, in_block: bool) -> None:
        before = dict(module.named_parameters(recurse=False))
        style = self._style(rule, Shard(SEQUENCE) if in_block and self._sequential else Replicate())
        parallelize_module(module, self._mesh, style, src_data_rank=None)
        for name, weight in before.items():
            if weight not in self._parts:
                self._parts[weight] = getattr(module, name)
            setattr(module, name, self._parts[weight])
        if rule.word == "colwise_loss":
            compute_losses_in_parts()
            module.register_forward_hook(_whole_without_gradient)

    def _style(self, rule: TensorRule, between: Placement) -> ParallelStyle:
        """`between`: layout of activations around this module, outside any pair of colwise and rowwise."""
        match rule.word:
            case "colwise":
                return ColwiseParallel(input_layouts=between)
            case "colwise_gather":
                return ColwiseParallel(input_layouts=between, output_layouts=Replicate())
            case "colwise_loss":
                return ColwiseParallel(input_layouts=between, use_local_output=False)
            case "rowwise":
                return RowwiseParallel(output_layouts=between)
            case "embed":
                return EmbedParallel()
        return SequenceParallel(
            sequence_dim=0, use_local_output=True
        )  # it works on single positions: any dimension does

    def _enter(self, block: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        del block
        if not self._sequential:
            return args
        if not args or not isinstance(args[0], Tensor) or args[0].ndim <= SEQUENCE:
            raise ConfigError(
                "hints.tensor: with `sequence` a block needs its activation of shape (batch, sequence, ...) as first "
                "positional argument"
            )
        if args[0].shape[SEQUENCE] % self._mesh.size():
            raise ConfigError(
                f"train.mesh.tp = {self._mesh.size()}: a sequence of {args[0].shape[SEQUENCE]} does not divide into "
                f"{self._mesh.size()}; use a length that does, or remove `sequence` from hints.tensor"
            )
        return (self._redistribute(args[0], Replicate(), Shard(SEQUENCE)), *args[1:])

    def _leave(self, block: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        del block, args
        if not self._sequential:
            return output
        if isinstance(output, tuple):
            return (self._redistribute(output[0], Shard(SEQUENCE), Replicate()), *output[1:])
        return self._redistribute(output, Shard(SEQUENCE), Replicate())

    def _redistribute(self, local: Tensor, source: Placement, target: Placement) -> Tensor:
        laid = DTensor.from_local(local, self._mesh, [source], run_check=False)
        return laid.redistribute(placements=[target]).to_local()


def whole(tensor: Tensor) -> Tensor:
    """A distributed tensor, such as a loss that was computed in parts, as a plain one; any other as it is."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def _require_no_weights(module: nn.Module, name: str) -> None:
    own = [weight for weight, _ in module.named_parameters(recurse=False)]
    if own:
        raise ConfigError(
            f"hints.tensor: {name} holds {own} and has no word, although blocks get a part of each sequence; "
            '"sequence" is for modules that work on single positions, "local" for those that work on single heads'
        )


def _whole_without_gradient(module: nn.Module, args: tuple[Any, ...], logits: Any) -> Any:
    del module, args
    return logits if torch.is_grad_enabled() else whole(logits)
