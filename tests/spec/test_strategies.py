"""The table of strategies is complete, agrees with the degrees, and is the only list of their names."""

import ast
import re
from dataclasses import fields
from itertools import product
from pathlib import Path
from typing import get_args

import pytest

import gangline
from gangline.errors import ConfigError
from gangline.planner.layouts.layout import layout_of
from gangline.spec.mesh import Mesh
from gangline.spec.plan import Compression
from gangline.spec.profile import ModelProfile
from gangline.spec.strategies import (
    NO_WRAPPING,
    STRATEGIES,
    Strategy,
    effective_strategy,
    label_of,
    names,
    strategy_of,
    traits_of,
    wrapping_of,
)

SOURCES = Path(gangline.__file__).parent
TABLE = SOURCES / "spec" / "strategies.py"
GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "strategies.md"
PROFILE = ModelProfile(parameters=10**9, blocks=8, tensor_cuts=8, experts=8)
AMBIGUOUS = {"none", "tp", "cp", "ep", "pp"}
"""Names that are axes or values of options, too."""


def meshes():
    for pp, replicas, shards, cp, tp, ep in product((1, 2, 3), (1, 2), (1, 2, 4), (1, 2), (1, 2), (1, 2)):
        if shards * cp % ep == 0:
            yield Mesh(pp=pp, dp_replicate=replicas, dp_shard=shards, cp=cp, tp=tp, ep=ep)


def test_the_table_has_a_row_for_every_strategy_of_a_plan_but_explicit():
    assert (*STRATEGIES, "explicit") == get_args(Strategy)
    assert all(name == each.name for name, each in STRATEGIES.items())
    assert traits_of("zero3") is STRATEGIES["fsdp"]
    assert traits_of("auto") is traits_of("explicit") is traits_of("ddpp") is None


def test_names_keep_the_order_of_the_table_with_aliases_first():
    assert names() == tuple(STRATEGIES)
    assert [each for each in names(aliases=True) if each not in STRATEGIES] == ["zero3"]
    assert names(aliases=True).index("zero3") + 1 == names(aliases=True).index("fsdp")


def test_needs_are_keys_of_compression():
    keys = {each.name for each in fields(Compression)}
    assert all({*each.needs} <= keys for each in STRATEGIES.values())


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize(("world", "nodes"), [(1, 1), (2, 1), (4, 2), (8, 1), (8, 2), (16, 2)])
def test_degrees_of_a_strategy_stay_on_its_axes_and_carry_its_name(name, world, nodes):
    try:
        shape = layout_of(name, world, nodes, PROFILE)
    except ConfigError:
        return
    assert {axis for axis in (*shape.mesh.axes, "ep") if getattr(shape.mesh, axis) > 1} <= STRATEGIES[name].axes
    assert shape.name.partition("-")[0] == name
    assert effective_strategy(shape.strategy, shape.mesh) == name


def test_every_mesh_has_a_strategy_whose_axes_hold_its_degrees_or_is_a_product():
    for mesh in meshes():
        name = strategy_of(mesh)
        cut = {axis for axis in ("pp", "cp", "tp", "ep") if getattr(mesh, axis) > 1}
        assert (name in cut) if len(cut) == 1 else name == "3d" if cut else not STRATEGIES[name].cuts_model


def test_a_mesh_of_one_rank_is_not_wrapped_and_shards_are():
    assert wrapping_of("explicit", Mesh()) == NO_WRAPPING
    for mesh in meshes():
        wrapping = wrapping_of("explicit", mesh)
        assert wrapping.shards == (mesh.dp_shard * mesh.cp > 1)
        assert wrapping.gathers == wrapping.shards + wrapping.reshards
        assert not (mesh.pp > 1 and wrapping.reshards), "a pipeline keeps parameters whole between its micro-batches"


@pytest.mark.parametrize(
    ("strategy", "mesh", "label"),
    [
        ("none", Mesh(), "none"),
        ("ddp", Mesh(dp_replicate=2), "ddp-2"),
        ("hsdp", Mesh(dp_replicate=2, dp_shard=8), "hsdp-2x8"),
        ("tp", Mesh(tp=8), "tp-8"),
        ("tp", Mesh(dp_shard=4, tp=8), "tp-4x8"),
        ("pp", Mesh(pp=2, dp_shard=4), "pp-2x4"),
        ("3d", Mesh(pp=2, dp_shard=2, tp=2), "3d-2x2x2"),
        ("3d", Mesh(pp=2, tp=2), "3d-2x2"),
        ("local_sgd", Mesh(dp_replicate=4), "local_sgd-4"),
        ("diloco", Mesh(dp_replicate=2, dp_shard=4), "diloco-2x4"),
        ("explicit", Mesh(dp_replicate=2, tp=2), "explicit-4"),
    ],
)
def test_label_has_the_degrees_that_distinguish_plans(strategy, mesh, label):
    assert label_of(strategy, mesh) == label


def test_one_rank_is_refused_for_more():
    with pytest.raises(ConfigError, match=r"train\.strategy none is for one rank, the plan has 2"):
        effective_strategy("none", Mesh(dp_replicate=2))


def test_the_guide_has_a_row_for_every_strategy():
    rows = [line.split("|")[1] for line in GUIDE.read_text("utf-8").splitlines() if line.startswith("| `")]
    assert {*names(aliases=True)} <= {name for row in rows for name in re.findall(r"`(\w+)`", row)}


def test_no_other_module_lists_or_compares_names_of_strategies():
    wanted = {*names(aliases=True)} - AMBIGUOUS
    found = [
        f"{path.relative_to(SOURCES)}:{node.lineno} {node.value}"
        for path in sorted({*SOURCES.rglob("*.py")} - {TABLE})
        for node in _listed(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Constant) and node.value in wanted
    ]
    assert not found, "ask the table: gangline.spec.strategies"


def _listed(tree):
    """Members of collections, keys of dicts, operands of comparisons, patterns."""
    for node in ast.walk(tree):
        match node:
            case ast.Tuple(elts=members) | ast.List(elts=members) | ast.Set(elts=members) | ast.Dict(keys=members):
                yield from members
            case ast.Compare(left=left, comparators=others):
                yield from (left, *others)
            case ast.MatchValue(value=value):
                yield value
