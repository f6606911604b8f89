"""Compressor of a plan, and the hooks by which DDP and FSDP2 call it."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from gangline.spec.compression import Compression
from gangline.spec.plan import Plan
from gangline.train.parallel.compress.bucket import Bucket, Compressor, Layout, bucket_of_ddp, bucket_of_shard
from gangline.train.parallel.compress.collectives import GradientCollectives
from gangline.train.parallel.compress.compressors import Half, Int8, PowerSGD, TopK, Uncompressed
from gangline.train.runtime.context import RankContext
from gangline.train.runtime.torch_compat import GradBucket


def compressor_of(context: RankContext) -> Compressor | None:
    """Compressor that averages the gradients of replicas; None: DDP or FSDP2 does it. Collective."""
    plan = context.plan
    as_dtype = plan.wrapping.is_composable and plan.compression.kind in REDUCE
    alone = plan.mesh.dp_replicate == 1
    if plan.compression.kind == "none" or alone or as_dtype or plan.averages_rarely:
        return None
    wire = GradientCollectives(context.meshes.group("dp_replicate"), context.waits)
    compressor = make_compressor(plan.compression, wire, seed=plan.seed)
    if plan.compression.kind in APPROXIMATE:
        compressor = AfterWarmUp(
            Uncompressed(wire), compressor, is_warm=lambda: context.step > plan.schedule.warmup_steps
        )
    context.memories["compression"] = compressor
    return compressor


def reduce_dtype(plan: Plan) -> torch.dtype:
    """Precision in which FSDP2 averages gradients."""
    return torch.float32 if plan.averages_rarely else REDUCE.get(plan.compression.kind, torch.float32)


APPROXIMATE = frozenset({"powersgd", "topk"})
"""Kinds that send a small part of a gradient at a time: they start after the warm-up of the learning rate."""
REDUCE = {"fp16": torch.float16, "bf16": torch.bfloat16}
"""Kinds that FSDP2 supports as its reduce dtype."""


def make_compressor(compression: Compression, wire: GradientCollectives, *, seed: int) -> Compressor:
    """Compressor of the kind that the plan names."""
    match compression.kind:
        case "none":
            return Uncompressed(wire)
        case "fp16":
            return Half(wire, torch.float16)
        case "bf16":
            return Half(wire, torch.bfloat16)
        case "powersgd":
            return PowerSGD(wire, rank=compression.rank, seed=seed)
        case "topk":
            return TopK(wire, ratio=compression.ratio)
        case "int8":
            return Int8(wire)


DdpHook = Callable[[object, GradBucket], torch.futures.Future[Tensor]]


def ddp_hook(compressor: Compressor, model: nn.Module) -> DdpHook:
    """Hook for `register_comm_hook`; on CUDA it overlaps the backward pass, on the CPU it blocks.

    DDP requires the name `bucket` of the second parameter, and infers from the function's name what the backend has.
    """
    names: Mapping[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    on_cuda = any(parameter.is_cuda for parameter in names)
    stream = torch.cuda.Stream() if on_cuda else None  # type: ignore[no-untyped-call]  # torch leaves it untyped

    def average_bucket(state: object, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        del state  # the compressor has its own state
        if stream is not None:
            stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            return compressor.average(bucket_of_ddp(bucket, names))

    return average_bucket


ShardHook = Callable[[Tensor], None]


def shard_hook(compressor: Compressor, layout: Layout) -> ShardHook:
    """Hook for `set_all_reduce_hook`: averages the reduced shards over their replicas."""

    def average_shards(flat: Tensor) -> None:
        compressor.average(bucket_of_shard(flat, layout)).wait()

    return average_shards


class AfterWarmUp(Compressor):
    """Uncompressed gradients during the warm-up, while weights change fast; only the second compressor has state."""

    def __init__(self, first: Compressor, then: Compressor, *, is_warm: Callable[[], bool]) -> None:
        """`is_warm` says, equally on all ranks, whether `then` is used."""
        self._first, self._then, self._is_warm = first, then, is_warm

    def average(self, bucket: Bucket) -> torch.futures.Future[Tensor]:
        return (self._then if self._is_warm() else self._first).average(bucket)

    def state(self) -> dict[str, Tensor]:
        return self._then.state()

    def load(self, state: Mapping[str, Tensor]) -> None:
        self._then.load(state)
