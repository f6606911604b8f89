"""Private steps: what Opacus needs from a model that a task calls in its own way."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from gangline.spec.federated import FederatedTable
from gangline.train.loop.private_training import PrivateSteps, RecordPrivacy

opacus = pytest.importorskip("opacus", reason="opacus is not here: pip install 'gangline[federated]'")


class Layer(nn.Linear):
    """A model that is one layer, as a loop calls it: by name."""

    def forward(self, x):
        return super().forward(x)


class Inner(nn.Module):
    """A model whose layer is called by name."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x):
        return self.layer(input=x)


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")  # of the first layer, whose input is data
@pytest.mark.parametrize("model", [Layer(4, 2), Inner()], ids=["the model", "a layer of it"])
def test_a_layer_that_is_called_by_name_trains_privately(model):
    data = [{"x": torch.ones(4) * number} for number in range(6)]
    trainer = SimpleNamespace(
        context=SimpleNamespace(device=torch.device("cpu"), plan=SimpleNamespace(micro_batch=2)),
        loss=lambda wrapped, batch: SimpleNamespace(total=wrapped(**batch).sum(), weight=len(batch["x"])),
    )
    privacy = RecordPrivacy(
        table=FederatedTable(local_steps=1, quorum=2, epsilon=4.0, clip_grad=1.0), noise=1.0, sample_rate=1.0,
        most_trainings=1, _accountant=opacus.accountants.RDPAccountant(),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps = PrivateSteps(trainer, model, optimizer, data, privacy)
    before = [each.detach().clone() for each in model.parameters()]
    with steps.model_ready():
        assert steps.backward(0)[1] == 6
        optimizer.step()
    assert all(not torch.equal(*pair) for pair in zip(before, model.parameters(), strict=True))
    model(x=torch.ones(1, 4))
    assert not any(each._forward_pre_hooks for each in model.modules())
