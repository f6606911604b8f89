"""Expert parallelism: each rank holds some experts, and rows are sent to the experts that their router picked.

The ranks that together hold one copy of all experts are peers on `ep`; the rest of dp_shard x cp shards each expert
further. An expert's gradient is already the sum over the rows of all its peers, while other gradients are averaged over
these ranks, so it is divided by their number here.
"""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from math import gcd
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard

from gangline.errors import ConfigError
from gangline.spec.plan import Plan
from gangline.train.account.clock import WaitMeter
from gangline.train.parallel.model_parts import join, matches
from gangline.train.parallel.precision import shard_policy
from gangline.train.runtime.context import RankContext
from gangline.train.runtime.torch_compat import all_to_all_single_autograd
from gangline.train.task import ParallelHints


def require_experts(model: nn.Module, hints: ParallelHints, plan: Plan) -> None:
    """Require experts that `plan` can distribute.

    Raises:
        ConfigError: The hints name no module with experts, the degree does not divide their number, or an option of
            the plan does not work with them.
    """
    degree = plan.mesh.ep
    if plan.memory.activation_checkpointing == "selective":
        raise ConfigError(
            'train.memory.activation_checkpointing = "selective" does not work with experts over ranks: their '
            'shards are gathered inside what is recomputed; "full", "every_2" and "none" work'
        )
    for name, module in find_experts(model, hints):
        _check(module, name, degree)


def find_experts(model: nn.Module, hints: ParallelHints) -> list[tuple[str, nn.Module]]:
    """Modules of `model` that hold experts, by name.

    Raises:
        ConfigError: The hints name none.
    """
    if hints.experts is None:
        raise ConfigError(
            '"ep" distributes experts over ranks, and hints.experts of the task names none; name their module: '
            'experts="layers.*.moe.experts"; a model without experts trains under "ddp" or "fsdp"'
        )
    found = [(name, each) for name, each in model.named_modules() if matches(name, hints.experts)]
    if not found:
        lists = sorted({name for name, each in model.named_modules() if isinstance(each, nn.ModuleList)})
        raise ConfigError(
            f"hints.experts {hints.experts!r} matches no module of {type(model).__name__}; its lists of blocks are "
            f'{lists}, and a pattern names a module inside them: "layers.*.moe.experts"'
        )
    return found


def common_experts(model: nn.Module, hints: ParallelHints) -> int | None:
    """Greatest common divisor of the numbers of experts, which every degree must divide; None: no experts."""
    if hints.experts is None:
        return None
    held = [each for name, each in model.named_modules() if matches(name, hints.experts)]
    firsts = {parameter.shape[0] for module in held for parameter in module.parameters() if parameter.ndim}
    return gcd(*firsts) if firsts else None


class ExpertParallel:
    """Distributes the modules that `hints.experts` names over the peers of a rank."""

    def __init__(self, context: RankContext, hints: ParallelHints, peers: DeviceMesh, *, reshard: bool) -> None:
        """`reshard`: shards of an expert are gathered only during its passes."""
        assert hints.experts is not None, "the plan needs them"
        self._context, self._pattern, self._peers, self._reshard = context, hints.experts, peers, reshard

    def cut(self, module: nn.Module, name: str) -> None:
        """Cut the experts inside `module`, which has its initial weights, to this rank's share; collective."""
        for inner, experts in list(module.named_modules()):
            if matches(join(name, inner), self._pattern):
                self._cut_experts(experts)

    def _cut_experts(self, experts: nn.Module) -> None:
        for module in experts.modules():
            for key, parameter in list(module.named_parameters(recurse=False)):
                module.register_parameter(key, _share(parameter, self._peers))
        _dispatch(experts, self._peers, self._context.waits)
        self._shard(experts)

    def _shard(self, experts: nn.Module) -> None:
        context, mesh = self._context, self._context.meshes.expert_data
        assert mesh is not None, "experts over ranks have a mesh"
        degree = mesh.size(mesh.ndim - 1)
        fully_shard(
            experts, mesh=mesh, mp_policy=shard_policy(context.plan.precision, is_root=False),
            reshard_after_forward=self._reshard, shard_placement_fn=lambda parameter: _placement(parameter, degree),
        )  # fmt: skip


def _placement(parameter: nn.Parameter, degree: int) -> Shard | None:
    """Shard along the second dimension, because peers hold parts of the first; None: torch's default."""
    return Shard(1) if parameter.ndim > 1 and parameter.shape[1] % degree == 0 else None


def _check(experts: nn.Module, name: str, degree: int) -> None:
    takes = list(inspect.signature(experts.forward).parameters)
    if len(takes) != 2:
        raise ConfigError(
            f"hints.experts: forward of {name} wants two arguments, the rows of all experts in their order and how "
            f"many each has, found {takes}; name the module inside it that does, as gangline.train.moe.Experts"
        )
    sizes = {key: tuple(parameter.shape) for key, parameter in experts.named_parameters()}
    firsts = {shape[0] if shape else 0 for shape in sizes.values()}
    if len(firsts) != 1:
        raise ConfigError(
            f"hints.experts: every parameter of {name} wants one entry an expert along its first dimension, found "
            f"{sizes}; stack the experts' weights, as gangline.train.moe.Experts does"
        )
    number = firsts.pop()
    if number % degree:
        works = [each for each in range(1, number + 1) if number % each == 0]
        raise ConfigError(f"train.mesh.ep = {degree} must divide the {number} experts of {name}; ep in {works} works")


def _share(parameter: nn.Parameter, peers: DeviceMesh) -> nn.Parameter:
    """This rank's experts of a parameter that is equal on all ranks."""
    own = parameter.detach().chunk(peers.size())[peers.get_local_rank()].clone()
    return nn.Parameter(DTensor.from_local(own, peers, [Shard(0)], run_check=False), parameter.requires_grad)


def _dispatch(experts: nn.Module, peers: DeviceMesh, waits: WaitMeter) -> None:
    """Replace `forward` by one that sends this rank's rows to their experts and returns the results in place."""
    forward = experts.forward

    @torch.compiler.disable  # type: ignore[untyped-decorator]  # torch leaves it untyped
    def over_ranks(rows: Tensor, counts: Tensor) -> Tensor:
        dispatch = _Dispatch(counts, len(rows), peers, waits)
        arrived = dispatch.send(rows)
        with _own_parts(experts, peers.size()):
            out = forward(arrived, dispatch.counts)
            if not len(arrived):  # every rank needs gradients, because the others wait for them
                out = out + sum(parameter.sum() * 0.0 for parameter in experts.parameters())
        return dispatch.combine(out)

    experts.forward = over_ranks


class _Dispatch:
    """Exchange of rows with the ranks of their experts."""

    def __init__(self, counts: Tensor, num_rows: int, peers: DeviceMesh, waits: WaitMeter) -> None:
        """`counts` says how many of this rank's `num_rows` rows go to each expert."""
        self._group = peers.get_group()
        sent = counts.view(peers.size(), -1)
        received = torch.empty_like(sent)
        with waits.timed():
            dist.all_to_all_single(received, sent.contiguous(), group=self._group)
            self._sent, self._received = _shares(sent, num_rows), _shares(received, num_rows)
        self.counts = received.sum(0)
        """Rows for each of this rank's experts."""
        numbers = torch.arange(received.shape[1], device=received.device).repeat(len(received))
        expert = numbers.repeat_interleave(received.flatten(), output_size=sum(self._received))
        self._order = expert.argsort(stable=True)

    def send(self, rows: Tensor) -> Tensor:
        """Rows of all peers for this rank's experts, in the order of experts, then of ranks."""
        return _awaited(all_to_all_single_autograd(rows, self._received, self._sent, self._group))[self._order]

    def combine(self, rows: Tensor) -> Tensor:
        return _awaited(
            all_to_all_single_autograd(rows[self._order.argsort()], self._sent, self._received, self._group)
        )


def _shares(counts: Tensor, num_rows: int) -> list[int]:
    """Rows of each peer; without values (fake tensors) an even split of `num_rows`."""
    if isinstance(counts, FakeTensor):
        each, rest = divmod(num_rows, len(counts))
        return [each + (number < rest) for number in range(len(counts))]
    return [int(each) for each in counts.sum(1).tolist()]


def _awaited(tensor: Tensor) -> Tensor:
    """The result of a functional collective, awaited."""
    wait = getattr(tensor, "wait", None)
    return wait() if wait is not None else tensor


@contextmanager
def _own_parts(module: nn.Module, num_peers: int) -> Iterator[None]:
    """Inside, parameters are this rank's plain tensors, and their gradients are divided by the number of peers."""
    replaced: list[tuple[dict[str, Any], str, Any]] = []
    for each in module.modules():
        parameters: dict[str, Any] = each._parameters  # noqa: SLF001  # these may hold a plain tensor
        replaced.extend((parameters, key, value) for key, value in parameters.items() if isinstance(value, DTensor))
    try:
        for parameters, key, value in replaced:
            parameters[key] = own = value.to_local()
            if own.requires_grad:
                own.register_hook(lambda grad: grad / num_peers)
        yield
    finally:
        for parameters, key, value in replaced:
            parameters[key] = value
