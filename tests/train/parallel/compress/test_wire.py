"""Bytes that strategies and kinds of compression send, counted on the loopback of a network namespace."""

import json
import os
import subprocess
import sys
from functools import cache

import pytest
from tests.train.gang import ROOT

FIXED = 0.006
"""Sums, control words, headers and acknowledgements, as a share of what DDP sends for the small model."""
FEW = (
    "ddp",
    "zero1",
    "fsdp",
    "ddp, powersgd",
    "ddp, topk",
    "ddp, int8",
    "fsdp, 4 micro-batches",
    "local_sgd, every 3",
)
"""One of each kind of message; others are in the table alone."""
OF_TABLE = {
    "zero1": 1.50, "zero1-4": 1.50, "zero2": 1.50, "zero2-4": 1.50, "fsdp": 1.98, "fsdp-4": 1.98,
    "fsdp, computes in bf16": 1.49, "fsdp, all in bf16": 0.99, "hsdp-2x2": 1.65, "ddp, fp16": 0.50, "ddp, bf16": 0.50,
    "ddp, powersgd": 0.014, "ddp, topk": 0.020, "ddp, int8": 0.256, "ddp-4, int8": 0.258,
}  # fmt: skip
"""Known figures of a byte-level GPT of 4.9 M parameters."""


@cache
def measured(folder, rows, layers, width):
    file = folder / f"wire-{layers}.json"
    program = [sys.executable, str(ROOT / "benchmarks" / "train" / "wire.py"), "--json", str(file)]
    sizes = ["--layers", str(layers), "--width", str(width)]
    done = subprocess.run(
        [*program, *sizes, "--rows", ";".join(rows)], capture_output=True, text=True, check=False, timeout=280
    )
    assert done.returncode == 0, done.stderr
    return json.loads(file.read_text())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    if os.geteuid() != 0 or subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False).returncode:
        pytest.skip("bytes are counted in a network namespace, and this user may not make one")
    return tmp_path_factory.mktemp("wire")


@pytest.mark.parametrize("row", FEW)
@pytest.mark.long
def test_bytes_of_a_step_are_those_of_its_collectives(folder, row):
    found = measured(folder, FEW, 2, 128)[row]
    assert found["ratio"] == pytest.approx(found["expected"], rel=0.01, abs=FIXED)


@pytest.mark.slow
@pytest.mark.parametrize("row", OF_TABLE)
def test_bytes_of_a_larger_model_are_those_of_the_table(folder, row):
    found = measured(folder, tuple(OF_TABLE), 6, 256)[row]
    assert found["ratio"] == pytest.approx(found["expected"], rel=0.01, abs=0.001)
    assert found["ratio"] == pytest.approx(OF_TABLE[row], rel=0.01, abs=0.005)
