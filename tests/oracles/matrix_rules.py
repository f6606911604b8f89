"""Muon, Shampoo and SOAP on one matrix in float64, slow and from the formulas of their papers."""

import numpy as np


def polynomial(singular, coefficients=(3.4445, -4.7750, 2.0315), steps=5):
    a, b, c = coefficients
    for _ in range(steps):
        singular = a * singular + b * singular**3 + c * singular**5
    return singular


def orthogonalized(matrix, steps=5):
    """What Newton-Schulz is without rounding: its polynomial on every singular value."""
    left, singular, right = np.linalg.svd(np.asarray(matrix, dtype=np.float64), full_matrices=False)
    norm = np.linalg.norm(singular)
    return left * polynomial(singular / norm if norm else singular, steps=steps) @ right


def muon(parameter, gradients, *, lr, weight_decay, momentum=0.95, nesterov=True, factor=1.0):
    """Parameter after all gradients."""
    held = np.zeros_like(parameter)
    for gradient in gradients:
        held = momentum * held + (1 - momentum) * gradient
        direction = momentum * held + (1 - momentum) * gradient if nesterov else held
        parameter = (1 - lr * weight_decay) * parameter - lr * factor * orthogonalized(direction)
    return parameter
