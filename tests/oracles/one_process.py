"""A training as a plain torch loop: one process, one backward pass over the whole batch, no runtime."""

import torch
from torch.utils.data import default_collate

from gangline.train.loop.sample_order import SampleOrder
from gangline.train.parallel.model_parts import find_blocks
from gangline.train.runtime.initialization import Initializer
from gangline.train.task import forward_names, hints_of


def train(task, *, options, data, steps, global_batch, seed=1, lr=1e-3, clip_norm=None, optimizer=torch.optim.AdamW):
    """State dict and losses after `steps` updates of torch's own AdamW, or another `optimizer`."""
    source = Initializer.build(lambda: task.build_model(dict(options)), seed=seed)
    for name, unit in [*find_blocks(source.model, hints_of(task)), ("", source.model)]:
        source.unit(unit, name, torch.device("cpu"))
    return continue_from(source.model, task, data=data, steps=steps, global_batch=global_batch, seed=seed, lr=lr,
                         clip_norm=clip_norm, optimizer=optimizer)  # fmt: skip


def continue_from(model, task, *, data, steps, global_batch, seed, lr, clip_norm, optimizer=torch.optim.AdamW):
    optimizer = optimizer(model.parameters(), lr=lr)
    order, takes, losses = SampleOrder(num_samples=len(data), seed=seed), forward_names(model), []
    for step in range(steps):
        samples = [order.sample(step * global_batch + place) for place in range(global_batch)]
        batch = default_collate([data[sample] for sample in samples])
        loss = task.loss(model(**{key: value for key, value in batch.items() if key in takes}), batch)
        mean = loss.total / loss.weight
        mean.backward()
        if clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(mean.item())
    return model.state_dict(), losses
