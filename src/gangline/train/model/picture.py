"""Summary of a model's parts and weights before it is sharded, for the report. Local."""

from collections.abc import Sequence
from itertools import groupby

from torch import nn

from gangline.spec.model_picture import MODEL_PICTURE, ModelLayer, ModelPart, ModelPicture
from gangline.storage.folder.durable_files import replace_file
from gangline.train.parallel.model_parts import join, matches
from gangline.train.runtime.context import RankContext
from gangline.train.task import ParallelHints

MOST_PARTS = 64
MOST_LAYERS = 32
Blocks = Sequence[tuple[str, nn.Module]]


def write_model_picture(context: RankContext, model: nn.Module, blocks: Blocks, hints: ParallelHints) -> None:
    """Write the picture on rank 0 of a training gang; other ranks do nothing."""
    if context.rank or context.out is None or context.plan.role != "train":
        return
    picture = picture_of(context, model, blocks, hints)
    context.out.mkdir(parents=True, exist_ok=True)
    replace_file(context.out / MODEL_PICTURE, picture.to_json(), durable=False)


def picture_of(context: RankContext, model: nn.Module, blocks: Blocks, hints: ParallelHints) -> ModelPicture:
    """Picture of the whole model, on any device."""
    plan = context.plan
    names = [name for name, _ in blocks]
    parts = [_part(name, module, hints, is_block=name in names) for name, module in _in_order(model, names)]
    joined = [_merge(list(alike)) for _, alike in groupby(parts, key=lambda part: (part.kind, part.layers))]
    return ModelPicture(
        kind=type(model).__name__, parameters=_count(model), plan=plan.name, strategy=plan.strategy, mesh=plan.mesh,
        parts=tuple(joined[:MOST_PARTS]),
    )  # fmt: skip


def _in_order(model: nn.Module, blocks: Sequence[str], name: str = "") -> list[tuple[str, nn.Module]]:
    """Blocks, and the largest modules without a block inside, in the order of the model."""
    found: list[tuple[str, nn.Module]] = []
    for child, module in model.named_children():
        own = join(name, child)
        if own in blocks or not any(block.startswith(f"{own}.") for block in blocks):
            found += [(own, module)] if _count(module) else []
        else:
            found += _in_order(module, blocks, own)
    return found


def _part(name: str, module: nn.Module, hints: ParallelHints, *, is_block: bool) -> ModelPart:
    layers = [
        _layer(inner, each, join(name, inner), hints)
        for inner, each in module.named_modules()
        if any(True for _ in each.parameters(recurse=False))
    ]
    return ModelPart(
        name=name, kind=type(module).__name__, is_block=is_block, parameters=_count(module),
        layers=tuple(layers[:MOST_LAYERS]),
    )  # fmt: skip


def _layer(inner: str, module: nn.Module, name: str, hints: ParallelHints) -> ModelLayer:
    weights = list(module.parameters(recurse=False))
    rule = next((word for pattern, word in hints.tensor.items() if matches(name, pattern)), "")
    return ModelLayer(
        name=inner, kind=type(module).__name__, shape=tuple(max(weights, key=lambda weight: weight.numel()).shape),
        parameters=sum(weight.numel() for weight in weights), rule=rule,
    )  # fmt: skip


def _merge(alike: list[ModelPart]) -> ModelPart:
    """Merge consecutive equal blocks."""
    first = alike[0]
    if len(alike) == 1:
        return first
    return ModelPart(
        name=first.name, last=alike[-1].name, kind=first.kind, repeats=len(alike), is_block=first.is_block,
        parameters=first.parameters, layers=first.layers,
    )  # fmt: skip


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
