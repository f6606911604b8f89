"""Steps with compiled blocks, and the share of the device's arithmetic they use: this runtime and a bare torch loop.

Two models, each in a process of its own: that of the 1B class, and blocks of torchtitan's Llama 3 "8B". Two copies with
equal optimizers, precision, clipping and compilation step in turn, a block of steps of one after a block of the other;
each block gives one mean, each pair of neighbours one ratio. Operations of a model are those of its products and
attention, a causal mask not taken off, as torchtitan counts them. Bound: a step takes at most 1.02 of the bare loop's.
"""

import time
from statistics import median, quantiles
from typing import Any

from figures import Report
from one_rank import apart, one_rank, plan_of, settle, trained
from shapes import Model, Shapes

BOUND = 1.02
WARM_UP = 2
"""Blocks of each side that do not count: in these, blocks of the models are compiled."""
MODELS = {"1B": "billion", "8B blocks": "wide"}


def names(_: Shapes) -> tuple[str, ...]:
    return tuple(f"{model}: {what}" for model in MODELS for what in ("step / bare", "MFU", "MFU of the bare loop"))


def run(report: Report, shapes: Shapes) -> None:
    peak, source = apart(top, shapes, report.conditions["device"])
    report.tell("operations_per_second", {"value": peak, "source": source})
    for name, which in MODELS.items():
        model: Model = getattr(shapes, which)
        flops = apart(operations, shapes, model)
        found = apart(compared, shapes, model)
        mfu = {side: flops * shapes.micro_batch / found[side] / peak for side in ("runtime", "bare")}
        report.tell(name, found | {"flops_per_sample": flops, "model": model, "mfu": mfu})
        report.add(f"{name}: step / bare", found["ratio"], at_most=BOUND, source="bare loop of this run")
        report.add(f"{name}: MFU", mfu["runtime"], at_least=mfu["bare"] / BOUND, source="bare loop of this run")
        report.add(f"{name}: MFU of the bare loop", mfu["bare"], at_most=1.0, source=source)


def top(shapes: Shapes, name: str) -> tuple[float, str]:
    from machine import ceiling

    return ceiling(shapes, name)


def operations(shapes: Shapes, model: Model) -> float:
    """Operations of one sample, forward and backward."""
    from planning_inputs import profile_of

    trace = profile_of(model).trace(shapes.precision)
    assert trace is not None, "it was followed"
    return trace.flops_per_sample


def compared(shapes: Shapes, model: Model) -> dict[str, Any]:
    """Seconds of a step of both sides, and what their ratio is."""
    steps = shapes.blocks * shapes.block_steps
    plan = plan_of(shapes, model, steps=steps + 1, compile=True)
    marks: dict[str, list[float]] = {"runtime": [], "bare": []}
    with one_rank(plan) as context:
        bare = Bare(plan)
        began = time.perf_counter()

        def after_step(step: int) -> None:
            nonlocal began
            if step % shapes.block_steps:
                return
            settle(shapes.device)
            marks["runtime"].append((time.perf_counter() - began) / shapes.block_steps)
            began = time.perf_counter()
            for number in range(shapes.block_steps):
                bare.step(number)
            settle(shapes.device)
            marks["bare"].append((time.perf_counter() - began) / shapes.block_steps)
            began = time.perf_counter()

        trained(context, after_step)
    return judged(marks)


def judged(marks: dict[str, list[float]]) -> dict[str, Any]:
    """Means of blocks, the first ones left out, if there are others."""
    ours, theirs = (marks[side][WARM_UP:] or marks[side][-1:] for side in ("runtime", "bare"))
    ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
    low, _, high = quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    return {
        "runtime": median(ours), "bare": median(theirs), "ratio": median(ratios), "quartiles": [low, high],
        "blocks": len(ratios), "first_block_seconds_a_step": {side: each[0] for side, each in marks.items()},
    }  # fmt: skip


class Bare:
    """The loop that anybody writes first: fetch, forward, backward, clip, AdamW, read the loss."""

    def __init__(self, plan: Any) -> None:
        import torch
        from llama import Model as Net
        from llama import Tokens

        self.data, self.batch, self.device, self.clip = (
            Tokens(plan.model),
            plan.global_batch,
            plan.device,
            plan.clip_norm,
        )
        with torch.device(plan.device):
            self.model = Net(**plan.model)
        for layer in self.model.layers:
            layer.compile()
        lr = plan.optimizer["elementwise"]["lr"]
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=lr, fused=True)

    def step(self, number: int) -> float:
        import torch
        from torch.nn.functional import cross_entropy
        from torch.utils.data import default_collate

        rows = [self.data[number * self.batch + place] for place in range(self.batch)]
        batch = {key: value.to(self.device, non_blocking=True) for key, value in default_collate(rows).items()}
        with torch.autocast(self.device, dtype=torch.bfloat16):
            logits = self.model(batch["tokens"])
            loss = cross_entropy(logits.flatten(0, 1).float(), batch["targets"].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.item()
