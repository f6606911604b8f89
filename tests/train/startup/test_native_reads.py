"""Files that a program opens in native code: databases of SQLite, what torch and torchvision read."""

import sqlite3
from pathlib import Path

import pytest


def test_a_database_of_sqlite_is_a_file_that_is_read(workspace):
    text = (
        "import os, sqlite3\nfolder = os.environ['OUTSIDE']\n"
        "for name in ('there.db', 'own.db', 'own.db'):\n"
        "    sqlite3.connect(f'{folder}/{name}').execute('create table if not exists a(b)')\n"
        "sqlite3.connect(f'file:{folder}/uri.db?mode=ro', uri=True); sqlite3.connect(':memory:')\n"
    )
    for name in ("there.db", "uri.db"):
        sqlite3.connect(workspace.outside / name).execute("create table a(b)")
    done = workspace.run(text)
    assert done.returncode == 0, done.stderr
    assert [Path(read["path"]).name for read in workspace.lines("read")] == ["there.db", "uri.db"]


NATIVELY = """\
import os, torch
from torch.jit import load
file = os.environ["OUTSIDE"] + "/labels.txt"
try:
    load(file)
except RuntimeError:
    print("no TorchScript")
print(torch.from_file(filename=os.environ["OUTSIDE"] + "/weights.bin", size=3, dtype=torch.uint8).sum())
"""


@pytest.mark.long
def test_what_torch_opens_in_native_code_is_reported(workspace):
    (workspace.outside / "weights.bin").write_bytes(bytes([1, 2, 3]))
    done = workspace.run(NATIVELY)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["no", "TorchScript", "tensor(6)"]
    read = [Path(line["path"]).name for line in workspace.lines("read")]
    assert sorted(read) == ["labels.txt", "weights.bin"]


TORCH = {
    "torch/__init__.py": "def from_file(filename): return filename\nfrom torch import jit\nimport torch.late\n",
    "torch/jit.py": "def load(f): raise RuntimeError(f)\n",
    "torch/late.py": "",
}


def test_calls_that_open_files_in_native_code_are_reported_and_do_what_they_did(workspace):
    for name, text in TORCH.items():
        (workspace.code / name).parent.mkdir(exist_ok=True)
        (workspace.code / name).write_text(text)
    done = workspace.run(
        "import os, pathlib, torch\nfile = pathlib.Path(os.environ['OUTSIDE'], 'labels.txt')\n"
        "print(torch.from_file(filename=file) == file, torch.from_file.__name__)\n"
        "try: torch.jit.load(f=3)\nexcept RuntimeError as error: print(error)\n"
    )
    assert done.stdout.split() == ["True", "from_file", "3"]
    (line,) = workspace.lines("read")
    assert line["path"] == str(workspace.outside / "labels.txt")
    assert workspace.lines("unseen") == []


TORCHVISION = {
    "torchvision/__init__.py": "from torchvision import io\nimport torchvision.late\n",
    "torchvision/io/__init__.py": "from torchvision.io.image import read_file, read_image\n",
    "torchvision/io/image.py": "def read_file(path): return str(path)\ndef read_image(path): return read_file(path)\n",
    "torchvision/late.py": "",
}


@pytest.mark.parametrize("call", ["read_image", "read_file"])
def test_images_that_torchvision_opens_in_native_code_are_reported(workspace, call):
    for name, text in TORCHVISION.items():
        (workspace.code / name).parent.mkdir(exist_ok=True)
        (workspace.code / name).write_text(text)
    done = workspace.run(
        f"import os\nfrom torchvision.io import {call} as call\nprint(call(os.environ['OUTSIDE'] + '/labels.txt'))\n"
    )
    assert done.stdout.strip() == str(workspace.outside / "labels.txt")
    assert [line["path"] for line in workspace.lines("read")] == [str(workspace.outside / "labels.txt")]
