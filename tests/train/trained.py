"""What a gang trained, and how far that is from what one process makes of the same samples."""

import torch
from tests.train.gang import Gang, stored_model

Trained = tuple[dict[str, torch.Tensor], list[float]]
"""Full weights by name, losses step by step."""


def trained(gang: Gang, plan, **environ) -> Trained:
    """Run `plan` to its end."""
    codes = gang.run(plan, **environ)
    assert codes == [0] * plan.world_size, "\n".join(gang.log(rank)[-4000:] for rank in range(plan.world_size))
    return left_by(gang)


def left_by(gang: Gang) -> Trained:
    """Of a gang that has ended well."""
    result = gang.result()
    return stored_model(gang, result.checkpoint), [loss for _, loss in result.jobs[0].losses]


def gaps(found: Trained, wanted: Trained) -> tuple[float, float]:
    """Largest difference of any weight, and of any loss relative to what it should be."""
    losses = torch.tensor(wanted[1])
    return weight_gap(found[0], wanted[0]), ((torch.tensor(found[1]) - losses) / losses).abs().max().item()


def weight_gap(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> float:
    """0: the same bits."""
    assert found.keys() == wanted.keys()
    return max((found[name] - tensor).abs().max().item() for name, tensor in wanted.items())
