"""What an exception means, by its number."""

import pytest
import torch

from gangline import errors
from gangline.train.runtime.error_classification import describe, exit_code_of
from gangline.train.runtime.torch_compat import NETWORK_ERRORS


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ValueError("user"), 30),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), 30),
        (KeyboardInterrupt(), 30),
        (errors.NonFiniteError("x"), 31),
        (errors.IntegrityError("x"), 50),
        (MemoryError(), 32),
        (torch.OutOfMemoryError("CUDA out of memory."), 32),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"), 32),
        (RuntimeError("[/x/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:3"), 34),
        *((each("store or backend"), 34) for each in NETWORK_ERRORS),
    ],
)
def test_class_of_an_exception_gives_the_exit_code(error, code):
    assert exit_code_of(error) == code


def test_description_is_one_line():
    assert describe(ValueError("first\nsecond")) == "ValueError: first"
    assert describe(ValueError()) == "ValueError: no message"
