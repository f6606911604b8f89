"""What a plan knows of a task's model, read in this process; it is built on the meta device, which takes no memory."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import nn

from gangline.errors import ConfigError
from gangline.measure.model_traces import traces_of
from gangline.optim.routing import named_parameters
from gangline.train.model.wrap import require_shardable
from gangline.train.parallel.call_order import require_no_skips
from gangline.train.parallel.chunked_loss import require_head
from gangline.train.parallel.context_parallel import require_sequences
from gangline.train.parallel.expert_parallel import common_experts, find_experts
from gangline.train.parallel.model_parts import find_blocks, find_embed_and_head, pipeline_pieces
from gangline.train.parallel.tensor_rules import common_degree
from gangline.train.runtime.initialization import Initializer
from gangline.train.task import ParallelHints, Task, hints_of, load_task


def obstacles(model: nn.Module, hints: ParallelHints) -> dict[str, str]:
    """Axis, or `loss_chunks`, to the reason why a gang of any size refuses it."""
    checks: dict[str, Callable[[], object]] = {
        "pp": lambda: find_embed_and_head(model, [name for name, _ in find_blocks(model, hints)], hints),
        "cp": lambda: _require_parts(model, hints),
        "ep": lambda: find_experts(model, hints),
        "dp_shard": lambda: _require_shares(model, hints),
        "loss_chunks": lambda: require_head(model, hints),
    }
    found = {axis: _refusal(check) for axis, check in checks.items()}
    return {axis: reason for axis, reason in found.items() if reason}


def _require_parts(model: nn.Module, hints: ParallelHints) -> None:
    """Peers of a sequence also shard the weights."""
    require_sequences(model, hints)
    _require_shares(model, hints)


def _require_shares(model: nn.Module, hints: ParallelHints) -> None:
    require_no_skips(skips=hints.skips, strategy="dp_shard and cp")
    require_shardable(model, find_blocks(model, hints))


def _refusal(check: Callable[[], object]) -> str:
    try:
        check()
    except ConfigError as error:
        return str(error)
    return ""


def model(name: str, options: dict[str, Any], names: Sequence[str] = ()) -> dict[str, Any]:
    """Size of the task's model, and the numbers of parts into which it can be cut.

    Raises:
        ConfigError: The task does not exist, or `build_model` does not take the options.
    """
    task = load_task(name)
    built = _build(task, options, name)
    parameters = {id(parameter): parameter for parameter in built.parameters()}.values()
    traced = traces_of(task, options, names=names)
    unstaged = traced.pop("unstaged")
    blocks = [
        sum(parameter.numel() for parameter in block.parameters()) for _, block in find_blocks(built, hints_of(task))
    ]
    return {
        "parameters": sum(parameter.numel() for parameter in parameters),
        "tensors": len(parameters),
        "shapes": _shapes(parameters),
        "named": [asdict(parameter) for parameter, _ in named_parameters(built)],
        "largest_block_parameters": max(blocks, default=None),
        "blocks": len(blocks),
        "pieces": _pieces(built, hints_of(task)),
        "builds_optimizer": hasattr(task, "build_optimizer"),
        "tensor_cuts": common_degree(built, hints_of(task)),
        "experts": common_experts(built, hints_of(task)),
        "obstacles": ({"pp": unstaged} if unstaged else {}) | obstacles(built, hints_of(task)),
        **traced,
    }


def _pieces(model: nn.Module, hints: ParallelHints) -> dict[str, Any] | None:
    """Pieces of a pipeline; None: no pipeline can cut the model, for the reason in `obstacles`."""
    blocks = dict(find_blocks(model, hints))
    try:
        ends = find_embed_and_head(model, list(blocks), hints)
    except ConfigError:
        return None
    return asdict(pipeline_pieces(model, blocks, ends))


def _shapes(parameters: Iterable[torch.Tensor]) -> list[dict[str, int]]:
    """Distinct shapes, those with the most elements first."""
    counts = Counter(
        (parameter.shape[0], parameter.numel() // parameter.shape[0])
        for parameter in parameters
        if parameter.ndim and len(parameter)
    )
    ordered = sorted(counts.items(), key=lambda each: (-each[0][0] * each[0][1], each[0]))
    return [{"rows": rows, "columns": columns, "count": count} for (rows, columns), count in ordered]


def _build(task: Task, options: dict[str, Any], name: str) -> torch.nn.Module:
    try:
        return Initializer.build(lambda: task.build_model(dict(options)), seed=0).model
    except TypeError as error:
        raise ConfigError(f"line.toml: [model]: {name}.build_model does not take {options}: {error}") from error
