"""A rule on one matrix, called as an executor calls it."""

import torch

SMALL_SHAPES = [(12, 30), (30, 12), (9, 9), (1, 7), (7, 1)]


def state_of(rule, shape, dtype=None):
    """Zeros under the names of the rule; `dtype` in place of its own."""
    return {
        name: torch.zeros(sides, dtype=dtype or getattr(torch, own))
        for name, (sides, own, _) in rule.spec.state(shape).items()
    }


def step(rule, parameter, gradient, state, *, refresh=False, **options):
    """Change `parameter` by one step; give the update."""
    options = rule.defaults | options
    prepared = rule.prepare(gradient, state, options)
    (update,) = rule.compute(prepared[None].clone(), [state], options, refresh=[refresh])
    rule.apply(parameter, update, options, tuple(parameter.shape))
    return update


def gradients(shape, count, *, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for _ in range(count)]


def relative(found, wanted):
    """Distance in the Frobenius norm."""
    wanted = torch.as_tensor(wanted, dtype=torch.float64)
    return float((found.double() - wanted).norm() / wanted.norm())
