"""A small regression by lightning; PLAIN: without the callback; STOP and DIE: at that step, on rank 1, once."""

import json
import os
import signal

import lightning
import torch
from lightning.pytorch import Callback

LOSSES = []


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 1))

    def training_step(self, batch, index):
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.body(x), y)
        both = loss.detach().clone()
        if torch.distributed.is_initialized():
            torch.distributed.all_reduce(both)
            both /= torch.distributed.get_world_size()
        LOSSES.append(float(both))
        return loss

    def validation_step(self, batch, index):
        self.log("val_loss", torch.nn.functional.mse_loss(self.body(batch[0]), batch[1]), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.05)


class Strike(Callback):
    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if os.environ.get("RANK") == "1" and os.environ.get("GANGLINE_GENERATION") == "0":
            if trainer.global_step + 1 == int(os.environ.get("STOP", "0")):
                os.kill(os.getpid(), signal.SIGTERM)
            if trainer.global_step + 1 == int(os.environ.get("DIE", "0")):
                os._exit(9)


def data():
    x = torch.randn(16, 4, generator=torch.Generator().manual_seed(3))
    return torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))


def main():
    quiet = {
        "logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False,
        "accelerator": "cpu", "num_sanity_val_steps": 0, "limit_val_batches": 2,
    }  # fmt: skip
    loaders = [torch.utils.data.DataLoader(data(), batch_size=4, shuffle=shuffle) for shuffle in (True, False)]
    if os.environ.get("PLAIN"):
        lightning.seed_everything(1, workers=True, verbose=False)
        world = int(os.environ.get("WORLD_SIZE", "1"))
        more = {"devices": world, "strategy": "ddp"} if world > 1 else {}
        trainer = lightning.Trainer(max_steps=6, max_epochs=-1, **quiet, **more)
        trainer.fit(Net(), loaders[0], loaders[1])
        say()
        return
    from gangline.integrations.lightning import GanglineCallback

    with GanglineCallback(steps=6) as gang:
        trainer = lightning.Trainer(
            max_steps=gang.steps, max_epochs=-1, callbacks=[Strike(), gang], **quiet, **gang.trainer_options()
        )
        trainer.fit(Net(), loaders[0], loaders[1], ckpt_path=gang.resume())
        say()


def say():
    if os.environ.get("RANK", "0") == "0":
        print("losses", json.dumps(LOSSES), flush=True)


if __name__ == "__main__":
    main()
