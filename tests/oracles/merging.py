"""A parameter server written slowly: one number at a time, in one process, no files."""

import math

import torch


class Run:
    """Weights, the residuals of all workers, and pushes in the order they came."""

    def __init__(self, start, shards, *, kind, ratio, lr, decay, workers, max_age):
        self.weights, self.momentum = start.clone(), [0.0] * len(start)
        self.shards, self.kind, self.ratio = shards, kind, ratio
        self.lr, self.decay, self.workers, self.max_age = lr, decay, workers, max_age
        self.residuals, self.waiting, self.version, self.dropped = {}, [], 0, 0

    def push(self, block, worker, version, change, after):
        """A change is sent with what earlier ones left out, whatever becomes of it later."""
        residual = self.residuals.setdefault(worker, [0.0] * len(change))
        sent = [0.0] * len(change)
        for shard in self.shards:
            places = range(shard.start, shard.stop)
            if shard.is_mean:
                values = [float(after[place]) for place in places]
                rounded = values
            else:
                values = [float(change[place]) + residual[place] for place in places]
                rounded = self._rounded(values)
            for place, value, seen in zip(places, values, rounded, strict=True):
                sent[place] = seen
                residual[place] = 0.0 if shard.is_mean else value - seen
        self.waiting.append((block, version, sent))

    def merge(self):
        """All that waits and is not too old, in one step."""
        taken = [(self.version - version, sent) for _, version, sent in sorted(self.waiting)]
        fresh = [(age, sent) for age, sent in taken if age <= self.max_age]
        self.dropped += len(taken) - len(fresh)
        self.waiting = []
        if not fresh:
            return
        shares = [1 / (1 + age / self.workers) for age, _ in fresh]
        part = len(fresh) / self.workers
        for shard in self.shards:
            for place in range(shard.start, shard.stop):
                mean = sum(share * sent[place] for share, (_, sent) in zip(shares, fresh, strict=True)) / sum(shares)
                value = float(self.weights[place])
                if shard.is_mean:
                    self.weights[place] = value + min(1.0, part) * (mean - value)
                else:
                    self.momentum[place] = self.decay**part * self.momentum[place] + part * mean
                    self.weights[place] = value - self.lr * part * (mean + self.decay * self.momentum[place])
        self.version += 1

    def _rounded(self, values):
        """As the receiver reads them; a shard of a test is one group of int8."""
        if self.kind == "bf16":
            return [float(torch.tensor(each).bfloat16()) for each in values]
        if self.kind == "int8":
            scale = max(map(abs, values)) / 127.0 or 1.0
            return [round(each / scale) * scale for each in values]
        if self.kind == "topk":
            kept = sorted(range(len(values)), key=lambda place: -abs(values[place]))
            kept = kept[: math.ceil(self.ratio * len(values))]
            return [each if place in kept else 0.0 for place, each in enumerate(values)]
        return values
