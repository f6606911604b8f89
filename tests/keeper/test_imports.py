"""The keeper needs the standard library alone: no import of another package, and it starts without any installed."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src"
KEEPER = SOURCE / "gangline" / "keeper"
ROOMS = (
    "gangline.errors", "gangline.fabric.reliability.interval", "gangline.keeper", "gangline.procfs",
    "gangline.sanitize", "gangline.spec", "gangline.storage.folder.durable_files",
    "gangline.storage.folder.safe_paths", "gangline.units",
)  # fmt: skip
TRANSFER = {"gangline.checkpoint", "gangline.http", "gangline.storage", "stamina"}
"""What the processes that talk to the store import besides; they start by module name."""
FILES = sorted(KEEPER.rglob("*.py"))
MODULES = [path for path in FILES if KEEPER / "transfer" not in path.parents]


def imports(path):
    """Modules that the file names in any import, those inside functions included."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(KEEPER)))
def test_keeper_imports_the_standard_library_and_rooms_that_need_no_more(path):
    rooms = ROOMS if path in MODULES else (*ROOMS, *TRANSFER, "gangline.keeper.transfer")
    others = {
        name
        for name in imports(path)
        if name.partition(".")[0] not in sys.stdlib_module_names
        and not any(name == room or name.startswith(f"{room}.") for room in rooms)
    }
    assert others == set()


def test_no_module_of_the_keeper_itself_imports_those_that_talk_to_the_store():
    assert not [path for path in MODULES if any(each.startswith("gangline.keeper.transfer") for each in imports(path))]


def test_keeper_starts_in_a_python_without_any_package():
    """`-I -S`: no site-packages, no PYTHONPATH; lazy imports are covered by the test above."""
    names = [".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__") for path in MODULES]
    program = f"import importlib, sys; sys.path.insert(0, {str(SOURCE)!r}); [*map(importlib.import_module, {names})]"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
