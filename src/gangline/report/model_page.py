"""Picture of a model as one HTML file without script: its parts in order, and how the plan cuts each weight."""

import math
from typing import NamedTuple

from markupsafe import Markup, escape

from gangline.report.pages import render_page
from gangline.report.palette import paint, stroke
from gangline.report.text import percent
from gangline.sanitize import sanitized
from gangline.spec.mesh import Mesh
from gangline.spec.model_picture import ModelLayer, ModelPart, ModelPicture
from gangline.units import format_count

SIDE_LEAST, SIDE_MOST = 12.0, 56.0
MOST_CUTS = 16
_ACROSS = {"inputs", "features"}
"""Cuts that run down the drawing: what is cut lies across it."""


class ModelLayerRow(NamedTuple):
    """One layer in the table of a part."""

    layer: ModelLayer
    shape: str
    share: float
    """Share of the part's parameters that this layer holds."""
    drawing: Markup
    cut: str


class ModelCard(NamedTuple):
    """One part of the model, as its page shows it."""

    part: ModelPart
    share: str
    """Share of the model's parameters that all parts like this one hold together."""
    rows: list[ModelLayerRow]


def render_model_page(run: str, picture: ModelPicture) -> str:
    """The whole page; equal pictures give equal bytes."""
    picture = sanitized(picture)
    largest = max((size for part in picture.parts for layer in part.layers for size in layer.shape), default=1)
    return render_page(
        "model.html.j2",
        run=run,
        picture=picture,
        cards=[_card(part, picture, largest) for part in picture.parts],
        tiles=_tiles(picture),
        axes=axis_words(picture.mesh),
        count=format_count,
    )


def axis_words(mesh: Mesh) -> list[tuple[str, str]]:
    """Effect of each used axis on the model."""
    words = {
        "pp": f"the blocks lie in {mesh.pp} stages, one after the other",
        "dp_replicate": f"{mesh.dp_replicate} copies take different samples and average their gradients",
        "dp_shard": f"each weight lies in {mesh.dp_shard} pieces, gathered for its block to compute",
        "cp": f"each sequence is cut into {mesh.cp} pieces; attention goes around them",
        "tp": f"weights with a rule are cut into {mesh.tp} pieces that compute side by side",
    }
    found = [(f"{axis} {degree}", words[axis]) for axis, degree in mesh.axes.items() if degree > 1]
    return [*found, *([(f"ep {mesh.ep}", f"experts lie in {mesh.ep} groups")] if mesh.ep > 1 else [])]


def _tiles(picture: ModelPicture) -> list[tuple[str, str]]:
    mesh = picture.mesh
    blocks = sum(part.repeats for part in picture.parts if part.is_block)
    return [
        ("parameters", format_count(picture.parameters)), ("blocks", str(blocks)),
        ("plan", picture.plan), ("ranks", str(mesh.world_size)),
    ]  # fmt: skip


def _card(part: ModelPart, picture: ModelPicture, largest: int) -> ModelCard:
    rows = [
        ModelLayerRow(
            layer,
            " × ".join(map(str, layer.shape)) or "1",
            layer.parameters / (part.parameters or 1),
            _weight(layer, picture.mesh, largest),
            cut_words(layer, picture.mesh),
        )
        for layer in part.layers
    ]
    return ModelCard(part, percent(part.parameters * part.repeats / (picture.parameters or 1)), rows)


def cut_words(layer: ModelLayer, mesh: Mesh) -> str:
    """`tp 2 by rows · dp_shard 4`; empty: it stays whole."""
    parts = []
    if mesh.tp > 1 and (axis := _tp_axis(layer)):
        parts.append(f"tp {mesh.tp} by {axis}")
    if mesh.dp_shard > 1:
        parts.append(f"dp_shard {mesh.dp_shard}")
    return " · ".join(parts)


def _tp_axis(layer: ModelLayer) -> str:
    """Cut of a weight; empty: none. Weights of a Linear are (outputs, inputs), tables are (rows, features)."""
    word, is_table = layer.rule.partition(":")[0], layer.kind == "Embedding"
    if word == "embed":
        return "rows"
    if word.startswith("colwise"):
        return "features" if is_table else "outputs"
    return "inputs" if word == "rowwise" else ""


def _weight(layer: ModelLayer, mesh: Mesh, largest: int) -> Markup:
    """The weight as a rectangle of its proportions: tensor-parallel cuts are thick, shards are stripes."""
    height, width = (_side(size, largest) for size in _two(layer.shape))
    parts = [f'<rect x="0" y="0" width="{width:.1f}" height="{height:.1f}" rx="2" {paint("sky")} fill-opacity="0.55"/>']
    shards = min(mesh.dp_shard, MOST_CUTS)
    for number in range(1, shards, 2):
        y, stripe = height * number / shards, height / shards
        parts.append(f'<rect x="0" y="{y:.1f}" width="{width:.1f}" height="{stripe:.1f}" {paint("blue")} '
                     'fill-opacity="0.28"/>')  # fmt: skip
    axis = _tp_axis(layer) if mesh.tp > 1 else ""
    for number in range(1, min(mesh.tp, MOST_CUTS) if axis else 1):
        share = number / min(mesh.tp, MOST_CUTS)
        x, y = width * share, height * share
        line = f"M{x:.1f} 0V{height:.1f}" if axis in _ACROSS else f"M0 {y:.1f}H{width:.1f}"
        parts.append(f'<path d="{line}" {stroke("red", 2)}/>')
    title = escape(f"{layer.name or layer.kind} {' x '.join(map(str, layer.shape))} {cut_words(layer, mesh)}".strip())
    return Markup(  # noqa: S704  # the one text inside went through escape()
        f'<svg role="img" aria-label="{title}" width="{SIDE_MOST:g}" height="{height:.1f}" '
        f'viewBox="0 0 {SIDE_MOST:g} {height:.1f}"><title>{title}</title>{"".join(parts)}</svg>'
    )


def _two(shape: tuple[int, ...]) -> tuple[int, int]:
    """Rows and columns; of a vector one row, of more dimensions the last two."""
    return (shape[-2], shape[-1]) if len(shape) > 1 else (1, shape[0] if shape else 1)


def _side(size: int, largest: int) -> float:
    """Square root, so that small ones are still seen."""
    return max(SIDE_LEAST if size > 1 else 5.0, SIDE_MOST * math.sqrt(size / largest))
