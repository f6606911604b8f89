"""Installed Python packages as files of an image: those of this environment, where it is of the image's Python.

Bytecode is made here, since a pod cannot write it; it is bound to its source by hash, so no times matter."""

import importlib.metadata
import importlib.util
import marshal
import os
import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path

from packaging.requirements import Requirement
from tests.cluster.images.archive import Entry
from tests.cluster.images.base import PYTHON
from tests.cluster.rig.trouble import Lacking

_ROOT = Path(__file__).parents[3]
TARGET = f"usr/local/lib/python{PYTHON[0]}.{PYTHON[1]}/dist-packages"
"""Where Debian's python3 looks, too."""
SMALL = ("cryptography", "minio", "prometheus-client", "stamina", "structlog")
"""What a keeper asks for, without torch."""
RECIPE = 1
"""Counts changes of how files of a distribution become entries: packed layers are known by it."""
LEFT_OUT = (
    "triton/*", "torch/include/*", "torch/test/*", "torch/bin/protoc*", "torch/lib/*.a", "torch/share/*",
    "nvidia/*/include/*", "nvidia/*.a", "nvidia/cudnn/lib/libcudnn_*", "nvidia/cu13/lib/libcusolver*",
    "nvidia/cu13/lib/libnvperf*", "nvidia/cu13/lib/libcheckpoint*", "nvidia/nvshmem/lib/nvshmem_*",
    "nvidia/nvshmem/lib/*.bc", "nvidia/cu13/bin/*", "nvidia/cu13/nvvm/*",
)  # fmt: skip
"""What ranks on CPU never open: compilers, headers, and CUDA libraries that torch is not linked with."""


def small_packages() -> set[str]:
    """`SMALL` and what they need."""
    return closure(SMALL)


def closure(names: Iterable[str]) -> set[str]:
    """These packages and what they need."""
    found: set[str] = set()
    wanted = list(names)
    while wanted:
        name = _canonical(wanted.pop())
        if name not in found:
            found.add(name)
            wanted += [each.name for each in _requirements(name)]
    return found


def locked_packages() -> set[str]:
    """Names in the lock of what a user installs."""
    lines = (_ROOT / "requirements" / "run.txt").read_text().splitlines()
    return {_canonical(line.split("==")[0]) for line in lines if re.match(r"[A-Za-z0-9]", line)}


def package_entries(names: Iterable[str]) -> Iterator[Entry]:
    """Files of these distributions, as far as they are installed."""
    if sys.version_info[:2] != PYTHON:
        raise Lacking(
            f"images carry the packages of this environment to Python {PYTHON[0]}.{PYTHON[1]}, and this is "
            f"{sys.version_info[0]}.{sys.version_info[1]}; make setup-dev PYTHON=python{PYTHON[0]}.{PYTHON[1]}"
        )
    wanted = set(names)
    for each in importlib.metadata.distributions():
        if _canonical(each.name) in wanted:
            yield from _distribution_entries(each)


def source_entries(sources: Mapping[str, bytes]) -> Iterator[Entry]:
    """Files by their name in the image, modules with their bytecode."""
    for name, source in sources.items():
        yield Entry(name=name, data=source)
        if name.endswith(".py"):
            yield from _bytecode_entry(source, name)


def _requirements(name: str) -> Iterator[Requirement]:
    for text in importlib.metadata.requires(name) or ():
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield requirement


def chosen_files(distribution: importlib.metadata.Distribution) -> Iterator[tuple[str, Path]]:
    """Files of one distribution that ranks on CPU may open, by their name in site-packages."""
    for file in distribution.files or ():
        name, path = str(file), Path(str(file.locate()))
        if name.startswith("..") or "__pycache__" in name or any(fnmatch(name, each) for each in LEFT_OUT):
            continue
        if path.is_file():
            yield name, path


def _distribution_entries(distribution: importlib.metadata.Distribution) -> Iterator[Entry]:
    for name, path in chosen_files(distribution):
        yield Entry(name=f"{TARGET}/{name}", source=path, mode=0o755 if os.access(path, os.X_OK) else 0o644)
        if path.suffix == ".py":
            yield from _bytecode_entry(path.read_bytes(), f"{TARGET}/{name}")


def _bytecode_entry(source: bytes, name: str) -> Iterator[Entry]:
    """None where a file is no Python of this version: templates, examples of newer syntax.

    Written in a form without references between objects: with them the bytes would depend on what else is loaded.
    """
    try:
        with warnings.catch_warnings(action="ignore"):
            code = compile(source, f"/{name}", "exec", dont_inherit=True, optimize=0)
    except (SyntaxError, ValueError):
        return
    unchecked = (1).to_bytes(4, "little")
    data = importlib.util.MAGIC_NUMBER + unchecked + importlib.util.source_hash(source) + marshal.dumps(code, 2)
    folder, _, file = name.rpartition("/")
    yield Entry(name=f"{folder}/__pycache__/{file[:-3]}.cpython-{PYTHON[0]}{PYTHON[1]}.pyc", data=data)


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
