"""The kernel of symmetric products, interpreted on the CPU operation by operation: its tiles need no GPU."""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

PROGRAM = """
import torch
from gangline.optim.rules.symmetric_product import symmetric_product
for shape in [(200, 96), (3, 136, 64), (2, 64, 264)]:
    left = torch.randn(shape, generator=torch.Generator().manual_seed(0)).half()
    plus = torch.randn(*shape[:-1], shape[-2], generator=torch.Generator().manual_seed(1)).half()
    plus = (plus + plus.mT) / 2
    found = symmetric_product(left, left, plus, alpha=0.5, beta=2.0)
    wanted = 0.5 * left.double() @ left.double().mT + 2 * plus.double()
    assert ((found.double() - wanted).norm() / wanted.norm()) < torch.finfo(torch.half).eps / 2, shape
    assert torch.equal(found, found.mT), shape
"""


@pytest.mark.long
@pytest.mark.skipif(not find_spec("triton"), reason="this torch comes without triton")
def test_tiles_on_and_below_the_diagonal_are_the_whole_product():
    """In float16: the interpreter multiplies no bfloat16."""
    found = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM], env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
