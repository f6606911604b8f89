"""The rule that the documentation shows, as anybody would write and use it."""

import re
from pathlib import Path

import numpy as np
import torch
from torch import nn

from gangline.optim.matrix_optimizer import MatrixOptimizer
from gangline.optim.routing import partition_params

PAGE = Path(__file__).parents[3] / "docs" / "contributing" / "add-an-optimizer-rule.md"


def test_the_rule_of_the_documentation_trains():
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names = {}
    exec(code, names)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(5, 6), nn.Linear(6, 4))
    weight, bias = (each.detach().double().numpy().copy() for each in model[1].parameters())
    optimizer = MatrixOptimizer(partition_params(model), rule=names["Polar"](lr=0.1, weight_decay=0.5))
    momentum = np.zeros((4, 6))
    for _ in range(3):
        model.zero_grad()
        model(torch.arange(5)).square().sum().backward()
        momentum = 0.95 * momentum + 0.05 * model[1].weight.grad.double().numpy()
        left, _, right = np.linalg.svd(momentum, full_matrices=False)
        weight = weight * (1 - 0.1 * 0.5) - 0.1 * left @ right
        optimizer.step()
    np.testing.assert_allclose(model[1].weight.detach().numpy(), weight, atol=1e-5)
    assert not np.allclose(model[1].bias.detach().numpy(), bias)
