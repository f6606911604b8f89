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


def shampoo(gradients, *, betas=(0.9, 0.999), eps=1e-4, refresh_every=1):
    """Updates after each of the gradients, every average as a sum over all gradients so far."""
    updates, roots = [], ()
    for count in range(1, len(gradients) + 1):
        if (count - 1) % refresh_every == 0:
            weights = np.sqrt(_weights(betas[1], count))
            left = np.hstack([weight * each for weight, each in zip(weights, gradients, strict=False)])
            right = np.hstack([weight * each.T for weight, each in zip(weights, gradients, strict=False)])
            roots = tuple(_inverse_fourth_root(each, eps) for each in (left, right))
        mean = sum(w * each for w, each in zip(_weights(betas[0], count), gradients, strict=False))
        updates.append(roots[0] @ mean @ roots[1])
    return updates


def _weights(beta, count):
    """Of each gradient in their average; their sum is 1."""
    return [(1 - beta) * beta ** (count - 1 - at) / (1 - beta**count) for at in range(count)]


def _inverse_fourth_root(wide, eps):
    """Of `wide @ wide.T`."""
    vectors, singular, _ = np.linalg.svd(wide)
    values = np.zeros(len(wide))
    values[: len(singular)] = singular**2
    return vectors * (values + eps * values.max()) ** -0.25 @ vectors.T


def soap(gradients, *, betas=(0.95, 0.95), shampoo_beta=0.95, eps=1e-8, refresh_every=10, largest_side=10_000):
    """Updates after each of the gradients; the first moment stays in the basis of the parameter."""
    shape = gradients[0].shape
    kept = [side <= largest_side for side in shape]
    factors = [np.zeros((side, side)) for side in shape]
    bases = [np.eye(side) for side in shape]
    first, second = np.zeros(shape), np.zeros(shape)
    updates = []
    for step, gradient in enumerate(gradients):
        update = np.zeros(shape)
        if step:
            first = betas[0] * first + (1 - betas[0]) * gradient
            turned = bases[0].T @ gradient @ bases[1]
            second = betas[1] * second + (1 - betas[1]) * turned**2
            mean = bases[0].T @ first @ bases[1] / (1 - betas[0] ** step)
            rest = eps / np.sqrt(1 - betas[1] ** step)
            update = bases[0] @ (mean / (np.sqrt(second / (1 - betas[1] ** step)) + rest)) @ bases[1].T
        updates.append(update)
        for dim, product in enumerate((gradient @ gradient.T, gradient.T @ gradient)):
            factors[dim] = shampoo_beta * factors[dim] + (1 - shampoo_beta) * product
            if kept[dim] and step == 0:
                bases[dim] = np.linalg.eigh(factors[dim])[1][:, ::-1]
            elif kept[dim] and step % refresh_every == 0:
                heights = np.diag(bases[dim].T @ factors[dim] @ bases[dim])
                order = np.argsort(-heights)
                bases[dim] = np.linalg.qr(factors[dim] @ bases[dim][:, order])[0]
                second = np.take(second, order, axis=dim)
    return updates
