"""What has gone wrong in matrix optimizers elsewhere, as far as a rule alone can go wrong."""

import numpy as np
import pytest
import torch
from tests.optim.rules.one_matrix import SMALL_SHAPES, gradients, relative, state_of, step
from tests.oracles.matrix_rules import orthogonalized, polynomial
from torch.overrides import TorchFunctionMode

from gangline.optim.matrix_optimizer import MatrixOptimizer
from gangline.optim.plan.matrix import FragmentSplit, fragments
from gangline.optim.rules import muon
from gangline.optim.rules.muon import Muon
from gangline.optim.rules.newton_schulz import newton_schulz
from gangline.optim.rules.soap import Soap
from gangline.spec.config.matrix_options import RULES as OF_LINES
from gangline.spec.config.matrix_rule import read_matrix_rule
from gangline.train.parallel.line_optimizer import make_rule

KERNELS = ["standard", "symmetric", "gram"]
RULES = [
    *(make_rule(read_matrix_rule({"rule": name})) for name in OF_LINES),
    Muon(dtype="float32"), Muon(kernel="gram", dtype="float32"), Soap(largest_side=10),
]  # fmt: skip
each_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.spec.name}-{getattr(rule, 'dtype', '')}")
each_kernel = pytest.mark.parametrize("kernel", KERNELS)
each_dtype = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("shape", [(24, 60), (60, 24)])
def test_rounding_changes_an_update_no_more_than_noise_does(shape, kernel):
    """Newton-Schulz amplifies small differences of gradients: its own rounding in float32 counts as 1e-6 of them."""
    matrix, noise = gradients(shape, 2)
    noisy = matrix.double() + 1e-6 * noise.double() * matrix.norm() / noise.norm()
    exact = orthogonalized(matrix)
    amplified = relative(torch.from_numpy(orthogonalized(noisy)), exact)
    assert 1e-6 < amplified < 5e-6
    assert relative(newton_schulz(matrix[None], kernel=kernel, dtype=torch.float32)[0], exact) < 3 * amplified


@each_kernel
@each_dtype
def test_the_magnitude_of_a_gradient_does_not_matter(kernel, dtype):
    (matrix,) = gradients((12, 30), 1)
    wanted = newton_schulz(matrix[None], kernel=kernel, dtype=dtype)
    for power in (-100, -30, 30, 100, 120):
        assert torch.equal(newton_schulz(matrix[None] * 2.0**power, kernel=kernel, dtype=dtype), wanted)
    for scale in (1e-40, 1e-30, 1e-20, 1e30, 1e37):
        assert relative(newton_schulz(matrix[None] * scale, kernel=kernel, dtype=dtype), wanted.double()) < 0.05


@each_rule
def test_a_zero_matrix_gives_zero(rule):
    state = state_of(rule, (5, 8))
    for _ in range(2):
        assert not step(rule, torch.zeros(5, 8), torch.zeros(5, 8), state).any()


@each_kernel
@each_dtype
def test_an_update_leaves_its_gradient_as_it_is(kernel, dtype):
    """Without Nesterov what `prepare` gives is the momentum itself."""
    for shape in SMALL_SHAPES:
        rule = Muon(nesterov=False, kernel=kernel, dtype=str(dtype).removeprefix("torch."))
        (gradient,) = gradients(shape, 1)
        state = state_of(rule, shape)
        prepared = rule.prepare(gradient, state, rule.defaults)
        rule.compute(prepared[None], [{}], rule.defaults, refresh=[False])
        assert torch.equal(state["momentum"], torch.zeros(shape).lerp(gradient, 1 - 0.95))


@each_kernel
@each_dtype
def test_a_tall_matrix_has_the_bits_of_its_transpose(kernel, dtype):
    for shape in ((12, 30), (7, 33), (1, 7)):
        (matrix,) = gradients(shape, 1)
        found = newton_schulz(matrix[None], kernel=kernel, dtype=dtype)
        assert torch.equal(newton_schulz(matrix.T[None], kernel=kernel, dtype=dtype).mT, found)
        strided = torch.stack((matrix, matrix), dim=-1)[..., 0]
        assert torch.equal(newton_schulz(strided[None], kernel=kernel, dtype=dtype), found)


@each_rule
@pytest.mark.parametrize("shape", [(7, 33), (33, 7), (16, 16), (1, 5)])
def test_a_batch_has_the_bits_of_its_matrices_one_by_one(rule, shape):
    count = 3
    together, alone = ([state_of(rule, shape) for _ in range(count)] for _ in range(2))
    for at in range(3):
        batch = torch.stack(gradients(shape, count, seed=at))
        due = [at == 1, False, at == 2]
        found = rule.compute(batch, together, rule.defaults, refresh=due)
        single = [
            rule.compute(batch[each : each + 1], [alone[each]], rule.defaults, refresh=[due[each]])[0]
            for each in range(count)
        ]
        assert torch.equal(found, torch.stack(single))


def test_updates_are_a_polynomial_of_singular_values_not_an_orthogonal_matrix():
    (matrix,) = gradients((40, 64), 1)
    singular = np.linalg.svd(matrix.double().numpy(), compute_uv=False)
    found = torch.linalg.svdvals(newton_schulz(matrix[None], dtype=torch.float64)[0].double())
    wanted = np.sort(polynomial(singular / np.linalg.norm(singular)))[::-1]
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-5)
    assert wanted.min() > 0.68
    assert 1.1 < wanted.max() < 1.21


@each_kernel
@each_dtype
def test_zero_rows_and_columns_are_exact(kernel, dtype):
    (matrix,) = gradients((12, 30), 1)
    padded = torch.zeros(16, 40)
    padded[:12, :30] = matrix
    found = newton_schulz(padded[None], kernel=kernel, dtype=dtype)[0]
    wanted = newton_schulz(matrix[None], kernel=kernel, dtype=dtype)[0]
    assert not found[12:].any()
    assert not found[:, 30:].any()
    assert relative(found[:12, :30], wanted.double()) < (1e-5 if dtype == torch.float32 else 0.02)


@each_kernel
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_matrix_that_is_not_finite_leaves_its_neighbours_alone(kernel, bad):
    batch = torch.stack(gradients((6, 9), 3))
    wanted = newton_schulz(batch, kernel=kernel)
    batch[1, 2, 3] = bad
    found = newton_schulz(batch, kernel=kernel)
    assert found[1].isnan().all()
    assert torch.equal(found[::2], wanted[::2])


SPLITS = {
    "gate_up": ((12, 9), FragmentSplit(kind="gate_up")),
    "gate_up_interleaved": ((12, 9), FragmentSplit(kind="gate_up_interleaved")),
    "qkv": ((24, 9), FragmentSplit(kind="qkv", heads=4, kv_heads=1, head_dim=4)),
    "qkv_by_group": ((32, 9), FragmentSplit(kind="qkv_by_group", heads=4, kv_heads=2, head_dim=4)),
    "stack": ((3, 5, 9), FragmentSplit(kind="stack")),
}


def optimizer_of(parameters, rule, splits=()):
    group = {"params": list(parameters.values()), "names": list(parameters), "kind": "matrix", "splits": dict(splits)}
    return MatrixOptimizer([group], rule=rule)


@each_rule
@pytest.mark.parametrize("kind", SPLITS)
def test_fragments_of_a_fused_parameter_are_separate_matrices(rule, kind):
    """A fused parameter taken whole, or scaled by its own shape, gives other steps."""
    shape, split = SPLITS[kind]
    parts = {
        each.fragment: torch.cat([torch.arange(*each_range) for each_range in each.rows])
        for each in fragments("fused", shape, split)
    }
    start, *given = gradients(shape, 4)
    fused = torch.nn.Parameter(start.clone())
    rows = start.view(-1, shape[-1])
    separate = {name: torch.nn.Parameter(rows[at].clone()) for name, at in parts.items()}
    whole = torch.nn.Parameter(rows.clone())
    optimizers = [
        optimizer_of({"fused": fused}, rule, {"fused": split}), optimizer_of(separate, rule),
        optimizer_of({"whole": whole}, rule),
    ]  # fmt: skip
    for gradient in given:
        fused.grad, whole.grad = gradient.clone(), gradient.view(whole.shape).clone()
        for name, at in parts.items():
            separate[name].grad = whole.grad[at].clone()
        for optimizer in optimizers:
            optimizer.step()
    for name, at in parts.items():
        assert torch.equal(fused.view(whole.shape)[at], separate[name])
    assert not torch.allclose(fused.view(whole.shape), whole, rtol=0, atol=1e-5)


class Precisions(TorchFunctionMode):
    """Precisions of float32 products while products and decompositions are computed."""

    OF = ("addmm", "baddbmm", "bmm", "matmul", "mm", "__matmul__", "linalg_eigh", "linalg_qr", "linalg_svd")
    backends = (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul)

    def __init__(self):
        super().__init__()
        self.seen = set()

    def now(self):
        return tuple(each.fp32_precision for each in self.backends)

    def __torch_function__(self, function, types, arguments=(), options=None):
        if function.__name__ in self.OF:
            self.seen.add(self.now())
        return function(*arguments, **options or {})


@each_rule
def test_products_are_exact_whatever_the_process_allows(rule):
    """TF32 or bfloat16 inside the products of float32 spoil bases and roots."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        with Precisions() as precisions:
            allowed = precisions.now()
            state = state_of(rule, (5, 8))
            for gradient in gradients((5, 8), 2):
                step(rule, torch.zeros(5, 8), gradient, state, refresh=True)
            assert "ieee" not in allowed
            assert precisions.seen == {("ieee", "ieee")}
            assert precisions.now() == allowed
    finally:
        torch.set_float32_matmul_precision(before)


@each_rule
@pytest.mark.parametrize("shape", [(1, 9), (9, 1), (1, 1)])
def test_a_matrix_of_one_row_or_column_is_updated(rule, shape):
    parameter, state = torch.ones(shape), state_of(rule, shape)
    for gradient in gradients(shape, 3):
        step(rule, parameter, gradient, state)
    assert parameter.isfinite().all()
    assert (parameter != 1).all()


def test_newton_schulz_is_called_once_for_each_matrix(monkeypatch):
    counted = []

    def counting(batch, **options):
        counted.append(len(batch))
        return newton_schulz(batch, **options)

    monkeypatch.setattr(muon, "newton_schulz", counting)
    parameters = {name: torch.nn.Parameter(each) for name, each in zip("ab", gradients((12, 9), 2), strict=True)}
    optimizer = optimizer_of(parameters, Muon(), {"a": FragmentSplit(kind="gate_up")})
    for name, gradient in zip("ab", gradients((12, 9), 2, seed=1), strict=True):
        parameters[name].grad = gradient
    optimizer.step()
    assert sum(counted) == 3


@each_rule
@each_dtype
@pytest.mark.parametrize("shape", [(37, 41), (3, 5, 67)])
def test_elementwise_parts_have_the_same_bits_in_any_cut(rule, dtype, shape):
    """`prepare` and `apply` see what a rank holds: rows, columns, or single elements."""
    parameter, *given = gradients(shape, 3, dtype=dtype)
    update = gradients(shape, 1, seed=9)[0]
    state = {"momentum": torch.zeros(shape)}
    whole, prepared = parameter.clone(), None
    for gradient in given:
        prepared = rule.prepare(gradient, state, rule.defaults).clone()
    rule.apply(whole, update, rule.defaults, (37, 41))
    for cut in (np.s_[1:8], np.s_[..., 3:22], np.s_[-1:, ..., 5:6]):
        part, held = parameter[cut].clone(), {"momentum": torch.zeros(parameter[cut].shape)}
        for gradient in given:
            found = rule.prepare(gradient[cut].clone(), held, rule.defaults)
        rule.apply(part, update[cut].clone(), rule.defaults, (37, 41))
        assert torch.equal(found, prepared[cut])
        assert torch.equal(part, whole[cut])


@each_rule
def test_parameters_decay_before_the_update(rule):
    parameter, update = gradients((12, 9), 2)
    start = parameter.clone()
    rule.apply(parameter, update, rule.defaults | {"lr": 0.1, "weight_decay": 0.5}, (12, 12))
    assert torch.equal(parameter, start.mul(1 - 0.1 * 0.5).add(update, alpha=-0.1))
