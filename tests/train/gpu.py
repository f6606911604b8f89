"""The device of tests marked `gpu`: a CUDA one, or the CPU where their code is to be run without one."""

import os

import pytest
import torch

DEVICE = os.environ.get("GANGLINE_TEST_DEVICE", "cuda")
"""`cpu` in a rehearsal of a session on a GPU."""
needs_device = pytest.mark.skipif(DEVICE == "cuda" and not torch.cuda.is_available(), reason="there is no CUDA device")
on_gpu = [pytest.mark.gpu, needs_device]
cuda_alone = pytest.mark.skipif(DEVICE != "cuda", reason="there is nothing like it on CPUs")
