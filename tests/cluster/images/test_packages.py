"""What goes into images: no torch in the small one, bytecode that Python takes as it is."""

import importlib.metadata
import importlib.util
import marshal
import sys

import pytest
from tests.cluster.images import packages
from tests.cluster.images.base import PYTHON

of_the_image = pytest.mark.skipif(sys.version_info[:2] != PYTHON, reason="images carry packages of Python 3.11")


def entries(*names):
    return {entry.name: entry for entry in packages.package_entries(names)}


def test_small_image_has_what_a_keeper_needs_and_no_torch():
    found = packages.small_packages()
    assert {"minio", "stamina", "structlog", "cryptography", "cffi"} <= found
    assert not {"torch", "numpy"} & found


def test_locked_packages_are_those_of_the_lock():
    found = packages.locked_packages()
    assert {"torch", "minio", "cattrs"} <= found
    assert "pytest" not in found


def test_compilers_and_headers_are_left_out_of_torch():
    found = dict(packages.chosen_files(importlib.metadata.distribution("torch")))
    assert {"torch/lib/libtorch_cpu.so", "torch/bin/torch_shm_manager", "torch/__init__.py"} <= set(found)
    assert not [name for name in found if name.startswith("torch/include/") or name.endswith(".a")]


@of_the_image
def test_each_module_has_bytecode_bound_to_its_source():
    found = entries("stamina")
    name = f"{packages.TARGET}/stamina/__init__.py"
    code = found[f"{packages.TARGET}/stamina/__pycache__/__init__.cpython-311.pyc"].data
    source = found[name].source.read_bytes()
    assert code[:16] == importlib.util.MAGIC_NUMBER + b"\1\0\0\0" + importlib.util.source_hash(source)
    assert marshal.loads(code[16:]).co_filename == f"/{name}"


def test_bytecode_does_not_depend_on_what_ran_before():
    sources = {
        "package/module.py": b"NAMES = frozenset({'a', 'b', 'c'})\ndef f(names):\n    return names in {'x', 'y'}\n"
    }
    first = [entry.data for entry in packages.source_entries(sources)]
    sys.intern("a-name-that-is-new")
    assert [entry.data for entry in packages.source_entries(sources)] == first


def test_file_that_is_not_python_is_a_mere_file():
    assert [entry.name for entry in packages.source_entries({"template.py": b"{{ not python }} :"})] == ["template.py"]
