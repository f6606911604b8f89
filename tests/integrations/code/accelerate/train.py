"""A small regression by accelerate; PLAIN: without the run; STOP and DIE: at that step, on rank 1, once."""

import json
import os
import signal

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed


def strike(step):
    if os.environ.get("RANK") == "1" and os.environ.get("GANGLINE_GENERATION") == "0":
        if step == int(os.environ.get("STOP", "0")):
            os.kill(os.getpid(), signal.SIGTERM)
        if step == int(os.environ.get("DIE", "0")):
            os._exit(9)


def prepared(accelerator):
    x = torch.randn(128, 4, generator=torch.Generator().manual_seed(3))
    data = torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    loader = torch.utils.data.DataLoader(data, batch_size=4)
    return accelerator.prepare(model, optimizer, loader)


def train(run=None, steps=6):
    if run is None:
        set_seed(1)
    accelerator = Accelerator(cpu=True)
    model, optimizer, loader = prepared(accelerator)
    begin = run.resume(accelerator) if run else 0
    losses = []
    for step, (x, y) in enumerate(accelerator.skip_first_batches(loader, begin), start=begin + 1):
        strike(step)
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        losses.append(float(accelerator.reduce(loss.detach(), reduction="mean")))
        if run:
            run.step(accelerator, loss)
        if step == steps:
            break
    if accelerator.is_main_process:
        print("losses", json.dumps(losses), flush=True)
    return losses[-1]


def main():
    if os.environ.get("PLAIN"):
        train()
        return
    from gangline.integrations.accelerate import GanglineRun

    with GanglineRun(steps=6) as run:
        run.report(eval_loss=torch.tensor(train(run, run.steps)))


if __name__ == "__main__":
    main()
