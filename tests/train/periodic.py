"""The same drifting replicas averaged by ours and by torch's PeriodicModelAverager."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager

from gangline.train.account.clock import WaitMeter
from gangline.train.parallel.compress.collectives import GradientCollectives
from gangline.train.parallel.compress.compressors import Uncompressed
from gangline.train.parallel.local_sgd import Average, Mean


def ours_and_torchs(steps, every):
    """Weights after `steps` steps of SGD, averaged after every `every`, as the two do it."""
    models = []
    for _ in range(2):
        torch.manual_seed(1)
        models.append(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)))
    ours, theirs = models
    mean = Mean(ours, Average(Uncompressed(GradientCollectives(None, WaitMeter())), bucket_bytes=64))
    averager = PeriodicModelAverager(period=every)
    averager.step = 1  # it counts from 0, and would average before anything was trained apart
    for step in range(1, steps + 1):
        for model in models:
            torch.manual_seed(100 * step + dist.get_rank())
            train_one(model)
        if step % every == 0:
            with torch.no_grad():
                mean.combine()
        averager.average_parameters(theirs.parameters())
    return weights(ours), weights(theirs)


def weights(model):
    return {name: each.detach() for name, each in model.named_parameters()}


def train_one(model):
    model(torch.randn(8, 4)).pow(2).mean().backward()
    with torch.no_grad():
        for each in model.parameters():
            each.sub_(0.1 * each.grad)
            each.grad.zero_()
