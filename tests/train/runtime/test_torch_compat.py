"""Names of torch that move stand in one file, and what of torch fails in ways of its own stands in none."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[3] / "src" / "gangline"
COMPAT = ("train/runtime/torch_compat.py", "train/runtime/torch_collectives.py", "optim/executors/torch_names.py")
"""The second one because short processes import it alone, the third because `optim` is used without `train`, too."""
_COMPAT_MODULES = {f"gangline.{each.removesuffix('.py').replace('/', '.')}" for each in COMPAT}
MOVED = frozenset({
    "all_gather_into_tensor", "all_gather_single", "reduce_scatter_tensor", "reduce_scatter_single", "GradBucket",
})  # fmt: skip
"""They have one name before torch 2.15 and another from then on, or are not public yet."""
MEASURING = ("measure/",)
"""Never runs in a rank: it takes apart what torch does, by tools that torch keeps to itself."""
UNUSED = {
    "FullyShardedDataParallel": "FSDP1: post accumulate grad hooks cannot be registered on non-leaf tensors",
    "batched_powerSGD_hook": "a bare AssertionError",
    "quantization_pertensor_hook": "IndexError on gloo, and no error feedback",
    "quantization_perchannel_hook": "IndexError on gloo, and no error feedback",
    "context_parallel": "no sharding strategy of attention on the CPU",
    "monitored_barrier": "one that fails ruins its group",
    "split_group": "no device of the default group on gloo",
    "clip_grad_norm_": "refuses parameters of several meshes",
    "RuntimeEstimator": "aborts the process, or asks for CUDA",
    "SACEstimator": "aborts the process, or asks for CUDA",
}
"""What torch offers and this tree leaves alone, and why."""


def imports(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Module and name of everything that is imported."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((each.name, "") for each in node.names)
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, each.name) for each in node.names)


def names(tree: ast.AST) -> set[str]:
    """Every name and attribute that is used, or imported."""
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    used |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return used | {name for _, name in imports(tree)}


def is_private(module: str, name: str) -> bool:
    parts = [*module.split("."), name]
    return parts[:2] == ["torch", "distributed"] and any(part.startswith("_") for part in parts)


@pytest.fixture(scope="module")
def trees():
    """Tree of each file that has to do with torch, by its path below the package."""
    texts = {str(path.relative_to(SOURCES)): path.read_text() for path in SOURCES.rglob("*.py")}
    return {path: ast.parse(text) for path, text in texts.items() if "torch" in text}


def test_one_file_alone_knows_what_torch_moves_or_keeps_to_itself(trees):
    wrong = []
    for path, tree in trees.items():
        if path.startswith((*COMPAT, *MEASURING)):
            continue
        found = list(imports(tree))
        wrong += [f"{path}: {module}.{name}" for module, name in found if is_private(module, name)]
        direct = {name for module, name in found if module not in _COMPAT_MODULES}
        attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        wrong += [f"{path}: {name}" for name in sorted(MOVED & (direct | attributes))]
    assert not wrong, f"take it from gangline.train.runtime.torch_compat: {wrong}"


def test_what_fails_in_a_way_of_its_own_is_not_used(trees):
    assert not {
        f"{path} uses {name}: {UNUSED[name]}" for path, tree in trees.items() for name in names(tree) & UNUSED.keys()
    }
