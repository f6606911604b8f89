"""Loss scaling of gradients that lie unlike."""

import pytest
import torch
from tests.train.parallel.peers import made_up
from torch.distributed.tensor import DTensor, Shard

from gangline.train.parallel.line_optimizer import split_groups_by_mesh
from gangline.train.parallel.precision import GangScaler


@pytest.mark.parametrize(("gradient", "steps"), [(2.0, True), (float("inf"), False), (float("nan"), False)])
def test_overflow_in_any_piece_keeps_all_parameters_as_they_are(gradient, steps):
    with made_up(tp=2) as mesh:
        whole = torch.nn.Parameter(torch.zeros(3))
        cut = torch.nn.Parameter(DTensor.from_local(torch.zeros(3), mesh, [Shard(0)]))
        optimizer = torch.optim.SGD([whole, cut], lr=1.0)
        split_groups_by_mesh(optimizer)
        scaler = GangScaler("cpu", init_scale=4.0)
        scaler.scale(torch.zeros(()))
        whole.grad = torch.full((3,), 4.0)
        cut.grad = DTensor.from_local(torch.full((3,), 4.0 * gradient), mesh, [Shard(0)])
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        found = whole.tolist() + cut.to_local().tolist()
    assert found == ([-1.0] * 3 + [-2.0] * 3 if steps else [0.0] * 6)
    assert scaler.get_scale() == (4.0 if steps else 2.0)
