"""Products and steps of a matrix rule on a GPU, against float64 and against the steps of the CPU."""

import pytest
import torch
from tests.optim.rules.one_matrix import gradients, relative
from tests.oracles.matrix_rules import orthogonalized
from tests.train.gpu import DEVICE, cuda_alone, on_gpu

from gangline.optim.matrix_optimizer import MatrixOptimizer
from gangline.optim.rules.muon import Muon
from gangline.optim.rules.newton_schulz import newton_schulz

pytestmark = on_gpu
each_kernel = pytest.mark.parametrize("kernel", ["standard", "symmetric", "gram"])


def random(shape, dtype, seed=0):
    (found,) = gradients(shape, 1, seed=seed, dtype=dtype)
    return found.to(DEVICE)


@cuda_alone
@pytest.mark.parametrize("shape", [(128, 64), (200, 96), (3, 136, 64), (2, 264, 520), (1024, 1024)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_symmetric_product_is_that_of_float64_rounded_once(shape, dtype):
    from gangline.optim.rules.symmetric_product import symmetric_product

    left, plus = random(shape, dtype), random((*shape[:-1], shape[-2]), dtype, seed=1)
    plus = (plus + plus.mT) / 2
    found = symmetric_product(left, left, plus, alpha=0.5, beta=2.0)
    wanted = 0.5 * left.double() @ left.double().mT + 2 * plus.double()
    assert relative(found.cpu(), wanted.cpu()) < torch.finfo(dtype).eps / 2
    assert torch.equal(found, found.mT)


@cuda_alone
def test_symmetric_products_of_a_batch_have_the_bits_of_each_alone():
    from gangline.optim.rules.symmetric_product import symmetric_product

    left = random((5, 264, 520), torch.bfloat16)
    assert torch.equal(symmetric_product(left, left), torch.stack([symmetric_product(each, each) for each in left]))


@each_kernel
@pytest.mark.parametrize("shape", [(1, 256, 520), (4, 256, 520), (2, 520, 256), (3, 250, 519)])
def test_every_kernel_is_the_polynomial_of_the_singular_values(kernel, shape):
    """250 rows are no multiple of what the copies of tiles want: these products are plain."""
    batch = torch.stack(gradients(shape[1:], shape[0]))
    for found, matrix in zip(newton_schulz(batch.to(DEVICE), kernel=kernel).cpu(), batch, strict=True):
        assert relative(found, orthogonalized(matrix)) < 5e-2


@each_kernel
def test_a_tall_matrix_has_the_bits_of_its_transpose(kernel):
    matrix = random((256, 520), torch.float32)
    assert torch.equal(newton_schulz(matrix.T[None], kernel=kernel).mT, newton_schulz(matrix[None], kernel=kernel))


@each_kernel
def test_steps_are_those_of_the_cpu(kernel):
    start, moved = torch.stack(gradients((64, 136), 3)), {}
    for device in ("cpu", DEVICE):
        parameters = [torch.nn.Parameter(each.clone().to(device)) for each in start]
        group = {"params": parameters, "names": ["a", "b", "c"], "kind": "matrix"}
        optimizer = MatrixOptimizer([group], rule=Muon(kernel=kernel, lr=0.1))
        for seed in (1, 2):
            for each, gradient in zip(parameters, gradients((64, 136), 3, seed=seed), strict=True):
                each.grad = gradient.to(device)
            optimizer.step()
        moved[device] = torch.stack([each.detach().cpu() for each in parameters]) - start
    assert relative(moved[DEVICE], moved["cpu"]) < 3e-2
