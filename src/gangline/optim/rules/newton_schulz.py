"""Newton-Schulz iterations: a polynomial carries every singular value of a matrix near 1, by products alone.

The iterations see the wide orientation: M rows, N columns, M <= N.

Source: K. Jordan, "Muon: An optimizer for hidden layers in neural networks" (2024), for X <- a X + (b G + c G^2) X with
G = X X^T. The Gram form follows from it: X_k+1 = P_k X_k with P_k = a I + b G_k + c G_k^2, so
G_k+1 = P_k G_k P_k, all of them symmetric M x M; the N columns are needed for G_0 and for the last product alone,
X_k = (P_k-1 ... P_0) X_0. Rounding enters G as the square of small singular values, so X is formed again halfway.
"""

from collections.abc import Callable
from importlib.util import find_spec
from typing import get_args

import torch
from torch import Tensor

from gangline.errors import ConfigError
from gangline.optim.rules.matrix_rule import ieee_products
from gangline.spec.config.matrix_options import MuonKernel

Coefficients = tuple[float, float, float]
"""Coefficients of the polynomial: of X, of X^3 and of X^5."""
Product = Callable[..., Tensor]
"""`product(left, right, plus, alpha=, beta=)`: alpha left right^T + beta plus."""


def newton_schulz(
    batch: Tensor,
    *,
    coefficients: Coefficients = (3.4445, -4.7750, 2.0315),
    steps: int = 5,
    eps: float = 0.0,
    kernel: MuonKernel = "standard",
    dtype: torch.dtype = torch.bfloat16,
) -> Tensor:
    """Near-orthogonal matrix of each matrix; local.

    The input is scaled in float32 or wider before it is rounded to `dtype`, so its magnitude does not matter. A tall
    matrix gives the bits of its transpose. A zero matrix gives zero, and one with NaN NaN in itself alone.

    Args:
        batch: `[B, rows, columns]`, tall or wide; not changed.
        coefficients: Of every step.
        steps: 0 or more; 5 give 0.68 to 1.21 for every singular value above 1/500 of the norm.
        eps: Norms below it count as it, so smaller matrices give smaller results.
        kernel: `symmetric` computes one triangle of each symmetric product, on a GPU in 16 bits; `gram` iterates on the
            Gram matrix, in such products where they are there.
        dtype: Of the products. On CPU a batch has the bits of its matrices one by one.

    Returns:
        Contiguous, of `dtype`.

    Raises:
        ConfigError: The kernel is unknown.
    """
    if kernel not in get_args(MuonKernel):
        raise ConfigError(f"kernel is one of {', '.join(get_args(MuonKernel))}, found {kernel!r}")
    is_tall = batch.shape[-2] > batch.shape[-1]
    wide = (batch.mT if is_tall else batch).contiguous()
    iterate: Callable[..., Tensor] = _by_gram if kernel == "gram" else _by_steps
    product = _plain_product if kernel == "standard" else _symmetric_product(wide, dtype)
    with ieee_products():
        together = [wide] if wide.is_cuda and len(wide) > 1 else list(wide)
        tensors = [iterate(_scaled(each, eps, dtype), coefficients, steps, product) for each in together]
    updates = tensors[0].view(wide.shape) if len(tensors) == 1 else torch.stack(tensors)
    return (updates.mT if is_tall else updates).contiguous()


def shared_newton_schulz(
    part: Tensor, *, coefficients: Coefficients, steps: int, eps: float, kernel: MuonKernel, dtype: torch.dtype,
    total: Callable[[Tensor], Tensor],
) -> Tensor:  # fmt: skip
    """Columns of the near-orthogonal matrix of a wide one whose columns are shared; not bitwise that of one rank.

    Collective: each step, or each half of them by `gram`, sums one Gram matrix.

    Args:
        part: `[rows, columns]` of this rank; not changed.
        coefficients: As those of `newton_schulz`, and so are `steps`, `eps`, `kernel` and `dtype`.
        total: Sum of a tensor over all ranks that share the matrix.
    """
    wide = part.double()
    norm = total(wide.square().sum()).sqrt().clamp(min=max(eps, torch.finfo(torch.float64).tiny))
    x = (wide / norm).to(dtype)
    iterate = _by_gram if kernel == "gram" else _by_steps
    product = _plain_product if kernel == "standard" else _symmetric_product(x, dtype)
    with ieee_products():
        return iterate(x, coefficients, steps, product, total)


def _alone(tensor: Tensor) -> Tensor:
    return tensor


def _scaled(batch: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
    """Each matrix over its Frobenius norm, rounded once.

    They are scaled by a power of two before, which is exact, so that no square is out of range.
    """
    batch = batch.to(torch.promote_types(batch.dtype, torch.float32))
    largest: Tensor = torch.linalg.vector_norm(batch, torch.inf, dim=(-2, -1), keepdim=True)
    exponent = torch.frexp(largest).exponent.clamp(min=-126)
    near_one = torch.ldexp(batch, -exponent)
    norm: Tensor = torch.linalg.vector_norm(near_one, dim=(-2, -1), keepdim=True)
    least = torch.ldexp(torch.full_like(norm, eps), -exponent).clamp(min=torch.finfo(norm.dtype).tiny)
    return torch.div(near_one, norm.maximum(least), out=torch.empty_like(near_one, dtype=dtype))


def _by_steps(
    x: Tensor, coefficients: Coefficients, steps: int, product: Product, total: Callable[[Tensor], Tensor] = _alone
) -> Tensor:
    a, b, c = coefficients
    for _ in range(steps):
        gram = total(product(x, x))
        x = _plus_product(x, product(gram, gram, gram, alpha=c, beta=b), x, beta=a)
    return x


def _by_gram(
    x: Tensor, coefficients: Coefficients, steps: int, product: Product, total: Callable[[Tensor], Tensor] = _alone
) -> Tensor:
    half = (steps + 1) // 2
    for count in (half, steps - half):
        if count:
            x = _polynomials(total(product(x, x)), coefficients, count, product) @ x
    return x


def _polynomials(gram: Tensor, coefficients: Coefficients, count: int, product: Product) -> Tensor:
    """P_count-1 ... P_0 of one Gram matrix or several; they commute, so all products are symmetric."""
    a, b, c = coefficients
    composed = None
    for step in range(count):
        each = product(gram, gram, gram, alpha=c, beta=b)
        each.diagonal(dim1=-2, dim2=-1).add_(a)
        composed = each if composed is None else product(each, composed)
        if step < count - 1:
            gram = product(product(each, gram), each)
    assert composed is not None, "a count is 1 or more"
    return composed


def _symmetric_product(batch: Tensor, dtype: torch.dtype) -> Product:
    """Product that computes one triangle where there is a kernel for it, else both, of which the mean counts."""
    if batch.is_cuda and find_spec("triton"):
        from gangline.optim.rules.symmetric_product import symmetric_product, takes

        if takes(batch.shape[-2:], dtype):
            return symmetric_product
    return _mean_of_triangles


def _mean_of_triangles(
    left: Tensor, right: Tensor, plus: Tensor | None = None, *, alpha: float = 1.0, beta: float = 0.0
) -> Tensor:
    product = _plain_product(left, right, plus, alpha=alpha, beta=beta)
    return product if left is right else (product + product.mT) / 2


def _plain_product(
    left: Tensor, right: Tensor, plus: Tensor | None = None, *, alpha: float = 1.0, beta: float = 0.0
) -> Tensor:
    """`alpha left right^T + beta plus`."""
    return left @ right.mT if plus is None else _plus_product(plus, left, right.mT, beta=beta, alpha=alpha)


def _plus_product(x: Tensor, left: Tensor, right: Tensor, *, beta: float, alpha: float = 1.0) -> Tensor:
    add = torch.addmm if x.ndim == 2 else torch.baddbmm
    return add(x, left, right, beta=beta, alpha=alpha)
