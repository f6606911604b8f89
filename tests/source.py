"""The package's source, parsed once for all tests that read it."""

import ast
import gc
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src" / "gangline"
FILES = sorted(SOURCE.rglob("*.py"))


@cache
def trees() -> dict[Path, ast.Module]:
    """Every file, parsed. A collection of garbage in between would visit all nodes so far: 3 of 5 seconds."""
    gc.disable()
    try:
        return {path: ast.parse(path.read_text()) for path in FILES}
    finally:
        gc.enable()
        gc.freeze()


@cache
def nodes() -> dict[Path, tuple[ast.AST, ...]]:
    """Every node of each file."""
    return {path: tuple(ast.walk(tree)) for path, tree in trees().items()}
