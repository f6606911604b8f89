"""A program that owns its loop: fit a small network to a curve, alone at a desk or in a gang of any size.

`python train.py` runs it here and now; `gangline run` runs the commit with rendezvous, checkpoints and resume.
"""

import torch
from torch import nn
from torch.nn.functional import mse_loss

from gangline.train import Loss, Session, parallelize


class Curve:
    """Samples of sin(3x) + x / 2 between -2 and 2; `offset` moves them, so that others can be held out."""

    def __init__(self, size: int, offset: float = 0.0) -> None:
        x = (torch.linspace(-2, 2, size) + offset).unsqueeze(1)
        self.x, self.y = x, torch.sin(3 * x) + x / 2

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"x": self.x[index], "y": self.y[index]}


def build_model() -> nn.Module:
    return nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))


def main() -> None:
    with Session(steps=200, global_batch=64) as session:
        model = parallelize(build_model(), session)
        optimizer = session.optimizer(model)
        for batch in session.batches(Curve(1024)):
            error = mse_loss(model(batch["x"]), batch["y"], reduction="sum")
            session.backward(Loss(total=error, weight=len(batch["x"])))
            session.step(optimizer)
        held_out = Curve(256, offset=0.001)
        with torch.no_grad():
            eval_loss = mse_loss(model(held_out.x.to(session.device)), held_out.y.to(session.device)).item()
        session.report(eval_loss=eval_loss)
        if session.rank == 0:
            print(f"eval_loss {eval_loss:.4f} with {session.world_size} ranks")


if __name__ == "__main__":
    main()
