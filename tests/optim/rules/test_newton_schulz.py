"""Kernels of Newton-Schulz against the polynomial of the singular values, which is what they compute."""

import pytest
import torch
from tests.optim.rules.one_matrix import SMALL_SHAPES, gradients, relative
from tests.oracles.matrix_rules import orthogonalized

from gangline.errors import ConfigError
from gangline.optim.rules.newton_schulz import newton_schulz

KERNELS = ["standard", "symmetric", "gram"]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("shape", SMALL_SHAPES)
def test_every_kernel_is_the_polynomial_of_the_singular_values(kernel, shape):
    (matrix,) = gradients(shape, 1, dtype=torch.float64)
    for steps in range(7):
        found = newton_schulz(matrix[None], steps=steps, kernel=kernel, dtype=torch.float64)[0]
        assert relative(found, orthogonalized(matrix, steps)) < 1e-12


@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 2e-5), (torch.bfloat16, 5e-2)])
@pytest.mark.parametrize("kernel", KERNELS)
def test_rounding_stays_near_that_of_the_dtype(dtype, error, kernel):
    for shape in ((48, 120), (64, 64)):
        (matrix,) = gradients(shape, 1)
        found = newton_schulz(matrix[None], kernel=kernel, dtype=dtype)
        assert (found.dtype, found.is_contiguous()) == (dtype, True)
        assert relative(found[0], orthogonalized(matrix)) < error


def test_gram_matrices_keep_small_singular_values_as_the_products_of_whole_ones_do():
    """Without forming the matrix anew halfway they lose them: errors become 1e-4, in bfloat16 more than 1."""
    left, right = (torch.linalg.qr(each).Q for each in gradients((64, 64), 2, dtype=torch.float64))
    matrix = left * torch.logspace(0, -3, 64, dtype=torch.float64) @ right
    for dtype, error in ((torch.float32, 1e-5), (torch.bfloat16, 0.15)):
        for kernel in KERNELS:
            rounded = matrix.to(dtype)
            found = newton_schulz(rounded[None], kernel=kernel, dtype=dtype)[0]
            assert relative(found, orthogonalized(rounded.double())) < error


def test_an_unknown_kernel_is_named():
    with pytest.raises(ConfigError, match="standard, symmetric, gram, found 'fast'"):
        newton_schulz(torch.ones(1, 2, 2), kernel="fast")
