"""A small regression by a Trainer; PLAIN: without the callback; STOP and DIE: at that step, on rank 1, once."""

import json
import os
import signal
from contextlib import nullcontext

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 1))

    def forward(self, x, labels):
        return {"loss": torch.nn.functional.mse_loss(self.body(x), labels)}


class Data(torch.utils.data.Dataset):
    def __init__(self):
        self.x = torch.randn(64, 4, generator=torch.Generator().manual_seed(3))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return {"x": self.x[index], "labels": self.x[index].sum().unsqueeze(0)}


class Strike(TrainerCallback):
    def on_step_begin(self, args, state, control, **_):
        if os.environ.get("RANK") == "1" and os.environ.get("GANGLINE_GENERATION") == "0":
            if state.global_step + 1 == int(os.environ.get("STOP", "0")):
                os.kill(os.getpid(), signal.SIGTERM)
            if state.global_step + 1 == int(os.environ.get("DIE", "0")):
                os._exit(9)


def main():
    if os.environ.get("PLAIN"):
        gang, own, steps, seed = nullcontext(), [], 6, 1
    else:
        from gangline.integrations.transformers import GanglineCallback

        gang = GanglineCallback(steps=6)
        own = [gang]
    with gang:
        if own:
            steps, seed = gang.steps, gang.seed
        args = TrainingArguments(
            output_dir="out",
            max_steps=steps,
            seed=seed,
            per_device_train_batch_size=4,
            learning_rate=0.05,
            use_cpu=True,
            report_to="none",
            disable_tqdm=True,
            save_strategy="no",
            logging_steps=1,
        )
        torch.manual_seed(seed)
        trainer = Trainer(model=Net(), args=args, train_dataset=Data(), callbacks=[Strike(), *own])
        trainer.train(resume_from_checkpoint=gang.resume() if own else None)
        losses = [each["loss"] for each in trainer.state.log_history if "loss" in each]
        if os.environ.get("RANK", "0") == "0":
            print("losses", json.dumps(losses), flush=True)
        trainer.evaluate(Data())


if __name__ == "__main__":
    main()
