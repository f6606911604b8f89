"""Check of tensor-parallel rules: a cut block must compute what it computed whole, forward and backward."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from gangline.errors import ConfigError
from gangline.train.parallel.model_parts import join
from gangline.train.parallel.tensor_rules import rule_of
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
    wanted = {"its input": inputs, **{name: each for name, each in block.named_parameters() if each.requires_grad}}
    direction = torch.linspace(-1, 1, output.numel(), device=output.device, dtype=output.dtype).view_as(output)
    grads = torch.autograd.grad(output, list(wanted.values()), direction, allow_unused=True)
    found = {f"the gradient of {name}": grad for name, grad in zip(wanted, grads, strict=True) if grad is not None}
    return {name: _whole(each).detach() for name, each in {"its output": output, **found}.items()}


def _whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def _alike(found: Tensor | None, wanted: Tensor) -> bool:
    if found is None or found.shape != wanted.shape:
        return False
    share = 1e-3 if wanted.dtype in (torch.float32, torch.float64) else 0.1
    return bool((found - wanted).abs().max() <= share * wanted.abs().max() + 1e-6)
