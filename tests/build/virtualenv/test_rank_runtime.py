"""Content of the rank runtime: rooms of gangline that ranks import, and none that only drivers use."""

import ast
import io
import zipfile
from pathlib import Path

import gangline
from gangline.build.virtualenv import rank_runtime

RANK_ROOMS = {
    "checkpoint", "data", "fabric", "federated", "http", "integrations", "keeper", "measure", "metrics", "optim",
    "planner", "spec", "storage", "train",
}  # fmt: skip

OF_DRIVERS = {"gangline/__main__.py", "gangline/data/resolve.py"}
"""Modules that only drivers import, in rooms of ranks."""


def wheel_of_gangline(folder):
    ((path, _),) = rank_runtime.write_wheels(folder, [])
    with zipfile.ZipFile(io.BytesIO(path.read_bytes())) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_every_room_is_one_of_ranks_or_one_of_drivers():
    root = Path(gangline.__file__).parent
    rooms = {path.name for path in root.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert rooms == RANK_ROOMS | rank_runtime.DRIVER_ROOMS
    assert not RANK_ROOMS & rank_runtime.DRIVER_ROOMS


def test_the_wheel_of_ranks_has_their_rooms_and_imports_no_other(tmp_path):
    files = wheel_of_gangline(tmp_path)
    assert {name.split("/")[1] for name in files if name.count("/") > 1 and name.startswith("gangline/")} == RANK_ROOMS
    imported = {
        name
        for path, data in files.items()
        if path.endswith(".py") and path not in OF_DRIVERS
        for node in ast.walk(ast.parse(data))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("gangline.")
        for name in [node.module.split(".")[1]]
    }
    assert not imported & rank_runtime.DRIVER_ROOMS
