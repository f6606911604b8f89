"""Local SGD and DiLoCo written slowly: one process, a model and an optimizer for each replica."""

import copy

import torch
from torch.utils.data import default_collate

from gangline.train.loop.sample_order import SampleOrder, share
from gangline.train.parallel.model_parts import find_blocks
from gangline.train.runtime.initialization import Initializer
from gangline.train.task import forward_names, hints_of


def first_model(task, options, seed):
    source = Initializer.build(lambda: task.build_model(dict(options)), seed=seed)
    for name, unit in [*find_blocks(source.model, hints_of(task)), ("", source.model)]:
        source.unit(unit, name, torch.device("cpu"))
    return source.model


def train(task, *, options, data, steps, global_batch, replicas, every, inner, outer=None, seed=1):
    """Weights after `steps`, and the loss of each step over all replicas.

    Args:
        inner: Parameters -> optimizer of one replica.
        outer: Rate and momentum of the outer update; None: the mean of the weights.
    """
    models = [first_model(task, options, seed) for _ in range(replicas)]
    optimizers = [inner(model.parameters()) for model in models]
    anchor = [each.detach().clone() for each in models[0].parameters()]
    speed = [torch.zeros_like(each) for each in anchor]
    order, losses = SampleOrder(num_samples=len(data), seed=seed), []
    for step in range(steps):
        found = [loss_of(task, model, data, order, step, global_batch, replicas, number)
                 for number, model in enumerate(models)]  # fmt: skip
        weight = sum(float(each.weight) for each in found)
        losses.append(sum(float(each.total.detach()) for each in found) / weight)
        for loss, optimizer in zip(found, optimizers, strict=True):
            (loss.total * replicas / weight).backward()
            optimizer.step()
            optimizer.zero_grad()
        if (step + 1) % every == 0 or step + 1 == steps:
            come_together(models, anchor, speed, outer)
    return models[0].state_dict(), losses


def loss_of(task, model, data, order, step, global_batch, replicas, number):
    start, stop = share(global_batch, replicas, number)
    batch = default_collate([data[order.sample(step * global_batch + place)] for place in range(start, stop)])
    takes = forward_names(model)
    return task.loss(model(**{key: value for key, value in batch.items() if key in takes}), batch)


@torch.no_grad()
def come_together(models, anchor, speed, outer):
    for number, weights in enumerate(zip(*(model.parameters() for model in models), strict=True)):
        mean = sum(weights) / len(models)
        if outer is None:
            new = mean
        else:
            rate, momentum = outer
            change = anchor[number] - mean
            speed[number] = momentum * speed[number] + change
            new = anchor[number] - rate * (change + momentum * speed[number])
        anchor[number] = copy.deepcopy(new)
        for each in weights:
            each.copy_(new)
