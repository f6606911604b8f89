"""Compressed averages of gradients, written slowly in one process: dicts of tensors by rank, entry by entry."""

from math import ceil

import torch


def mean_of(gradients):
    """Mean over ranks of `gradients[rank][name]`."""
    return {name: torch.stack([each[name] for each in gradients]).mean(0) for name in gradients[0]}


class TopK:
    """Every rank sends the largest entries of gradient plus what it kept back before."""

    def __init__(self, ranks, ratio):
        self.left, self.ratio = [{} for _ in range(ranks)], ratio

    def step(self, gradients):
        sent = [self._send(rank, each) for rank, each in enumerate(gradients)]
        return mean_of(sent)

    def _send(self, rank, gradient):
        sent = {}
        for name, grad in gradient.items():
            full = grad + self.left[rank].get(name, 0.0)
            order = full.abs().flatten().argsort(descending=True)[: ceil(self.ratio * full.numel())]
            mask = torch.zeros(full.numel(), dtype=torch.bool)
            mask[order] = True
            sent[name] = torch.where(mask.view_as(full), full, 0.0)
            self.left[rank][name] = full - sent[name]
        return sent


class Int8:
    """Both quantisations lose something; all of it comes back: the sum of left-overs is what the mean misses."""

    def __init__(self, ranks):
        self.left, self.lost = [{} for _ in range(ranks)], {}

    def step(self, gradients):
        ranks, result = len(gradients), {}
        for name in gradients[0]:
            sent = []
            for rank in range(ranks):
                full = gradients[rank][name] + self.left[rank].get(name, 0.0)
                sent.append(rounded(full))
                self.left[rank][name] = full - sent[-1]
            mean = sum(sent) / ranks
            result[name] = rounded(mean)
            self.lost[name] = mean - result[name]
        return result


def rounded(tensor):
    """Nearest multiples of max / 127 in each run of 256 values."""
    flat, out = tensor.flatten(), []
    for start in range(0, flat.numel(), 256):
        part = flat[start : start + 256]
        scale = part.abs().max() / 127
        out.append(torch.round(part / scale) * scale if scale > 0 else part)
    return torch.cat(out).view_as(tensor)


class PowerSGD:
    """One power iteration from the last Q; `first` gives the first one."""

    def __init__(self, ranks, rank, first):
        self.left, self.q, self.rank, self.first = [{} for _ in range(ranks)], {}, rank, first

    def step(self, gradients):
        ranks, result = len(gradients), {}
        for name, shape in ((name, each.shape) for name, each in gradients[0].items()):
            rows, columns = (shape[0], shape[1]) if len(shape) == 2 else (0, 0)
            if 2 * (rows + columns) * min(self.rank, rows, columns) >= rows * columns:
                result[name] = mean_of([{name: each[name]} for each in gradients])[name]
                continue
            full = [each[name] + self.left[rank].get(name, 0.0) for rank, each in enumerate(gradients)]
            q = torch.linalg.qr(self.q.get(name, self.first(name, columns))).Q
            p = torch.linalg.qr(sum(each @ q for each in full) / ranks).Q
            self.q[name] = sum(each.T @ p for each in full) / ranks
            result[name] = p @ self.q[name].T
            for rank in range(ranks):
                self.left[rank][name] = full[rank] - result[name]
        return result
