"""Wrapping of the blocks of a model, then of the whole: cut, recomputed, compiled, sharded, in this order."""

import os
from pathlib import Path

from torch import nn

from gangline.train.parallel.call_order import BlockCalls
from gangline.train.parallel.compress.bucket import layout_of_shard
from gangline.train.parallel.compress.factory import ShardHook, compressor_of, ddp_hook, reduce_dtype, shard_hook
from gangline.train.parallel.context_parallel import cut_block, cut_root
from gangline.train.parallel.data_parallel import (
    ParallelModel,
    Replicated,
    Sharded,
    SingleRank,
    replicate_module,
    shard,
    time_replicas,
)
from gangline.train.parallel.expert_parallel import ExpertParallel
from gangline.train.parallel.memory_savings import keep_on_host, recompute, shard_offload
from gangline.train.parallel.tensor_parallel import TensorParallel
from gangline.train.runtime.context import RankContext
from gangline.train.runtime.device_mesh import REPLICATE, SHARD
from gangline.train.runtime.initialization import ROOT
from gangline.train.task import ParallelHints

CACHE = "TORCHINDUCTOR_CACHE_DIR"
"""Environment variable of torch's compile cache, which has no other setting."""


def compile_block(block: nn.Module, folder: Path) -> None:
    """Compile `block` in place at its next call; results stay in `folder` for later generations."""
    os.environ.setdefault(CACHE, str(folder))
    block.compile()


class BlockWrapper:
    """Wraps each block, then the whole, in the one order that works. Every rank makes the same calls."""

    def __init__(self, context: RankContext, hints: ParallelHints) -> None:
        self._context, self._hints = context, hints
        self._wrapping = context.plan.wrapping
        self._compressor = compressor_of(context)
        if context.device.type == "cpu" and context.plan.mesh.dp_replicate > 1:
            time_replicas(context.waits)
        peers = context.meshes.axis("tp")
        self._tensor = TensorParallel(hints, peers, on_unchecked=self._on_unchecked) if peers is not None else None
        self._calls = BlockCalls(context)
        self._has_blocks = False
        hosts = context.meshes.axis("ep")
        self._experts = (
            ExpertParallel(context, hints, hosts, reshard=self._wrapping.reshards) if hosts is not None else None
        )

    def block(self, block: nn.Module, name: str, number: int) -> None:
        """Wrap `block`, which holds its whole initial weights."""
        self._has_blocks = True
        if self._tensor is not None:
            self._tensor.cut_block(block, name)
        if self._experts is not None:
            self._experts.cut(block, name)
        if self._context.plan.mesh.cp > 1:
            cut_block(block)
        recompute(block, number, self._context.plan.memory.activation_checkpointing)
        self._save_memory(block)
        if self._wrapping.shards:
            self._shard(block, name, is_root=False)
        elif self._wrapping.kind == "replicate":
            self._replicate(block, is_root=False)
        if self._wrapping.is_composable:
            self._calls.note(block, name)

    def root(self, module: nn.Module) -> None:
        """Wrap what is in no block of `module`, after all blocks."""
        if self._context.plan.mesh.cp > 1:
            cut_root(module, self._hints)
        if self._tensor is not None:
            self._tensor.finish(module)
        if not self._has_blocks:
            self._save_memory(module)
        if self._wrapping.shards:
            self._shard(module, ROOT, is_root=True)
        elif self._wrapping.kind == "replicate":
            self._replicate(module, is_root=True)

    def finish(self, module: nn.Module) -> ParallelModel:
        """The model as the loop calls it, after `root`."""
        context = self._context
        if self._wrapping.is_composable:
            return Sharded(module, self._calls, reduces_each=context.plan.memory.gradient_sync == "each")
        if self._wrapping.is_ddp:
            return Replicated(
                module, device=context.device, bucket_bytes=context.plan.bucket_bytes, waits=context.waits,
                group=context.meshes.group(REPLICATE),
                hook=ddp_hook(self._compressor, module) if self._compressor else None, skips=self._hints.skips,
            )  # fmt: skip
        return SingleRank(module)

    def _save_memory(self, module: nn.Module) -> None:
        """Applied to each block, or to a model without blocks as a whole."""
        if self._context.plan.memory.offload == "activations":
            keep_on_host(module)
        if self._context.plan.compile:
            compile_block(module, self._context.scratch / "compiled")

    def _on_unchecked(self, reason: str) -> None:
        self._context.events.emit("tensor_rules_untried", reason=reason)

    def _shard(self, module: nn.Module, name: str, *, is_root: bool) -> None:
        context = self._context
        alone = self._compressor is not None or context.plan.averages_rarely
        mesh = context.meshes.axis(SHARD) if alone else context.meshes.data
        assert mesh is not None, "a sharded plan has a mesh"
        shard(
            module, mesh, precision=context.plan.precision, reshard=self._wrapping.reshards, is_root=is_root,
            waits=context.waits, reduce=reduce_dtype(context.plan), hook=self._hook(module, name, mesh.size()),
            offload=shard_offload(to_host=context.plan.memory.offload == "cpu", device=context.device),
        )  # fmt: skip

    def _replicate(self, module: nn.Module, *, is_root: bool) -> None:
        mesh = self._context.meshes.data
        assert mesh is not None, "replicas have a mesh"
        plan = self._context.plan
        replicate_module(module, mesh, precision=plan.precision, is_root=is_root, reduce=reduce_dtype(plan))

    def _hook(self, module: nn.Module, name: str, shards: int) -> ShardHook | None:
        """Hook that averages the shards of `module` among replicas; None: FSDP2 does it."""
        if self._compressor is None:
            return None
        prefix = f"{name}." if name else ""
        return shard_hook(self._compressor, layout_of_shard(module, prefix, shards=shards))
