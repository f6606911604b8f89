"""Goes beside `model`: the tiny task with one thing about it that is unusual, or wrong."""

import torch
from model import Block, Net, Points, Tiny
from torch import nn
from torch.nn.functional import linear

from gangline.train import Loss, ParallelHints


class OddNet(Net):
    """With two named ends, so that a pipeline can cut it."""

    def embed(self, x):
        return self.first(self.norm(x))

    def head(self, x):
        return self.last(x).squeeze(-1)

    def forward(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Usual(Tiny):
    net = OddNet
    hints = ParallelHints(
        blocks="layers.*", embed="embed", head="head",
        tensor={"layers.*.inner": "colwise", "layers.*.outer": "rowwise"},
    )  # fmt: skip

    def build_model(self, options):
        return self.net(**options)


class TwoGroups(Usual):
    def build_optimizer(self, model, options):
        groups = {True: [], False: []}
        for each in model.parameters():
            groups[each.ndim > 1].append(each)
        plain = {"params": groups[False], "weight_decay": 0.0, "lr": 3e-3}
        return torch.optim.AdamW([{"params": groups[True], "weight_decay": 0.1}, plain], lr=1e-3)


class Frozen(Usual):
    """A whole block, and a weight of another."""

    def build_model(self, options):
        net = super().build_model(options)
        net.layers[0].requires_grad_(False)
        net.layers[1].inner.weight.requires_grad_(False)
        return net


class TiedNet(OddNet):
    def __init__(self, **options):
        super().__init__(**options)
        self.before, self.after = nn.Linear(8, 8), nn.Linear(8, 8)
        self.after.weight = self.before.weight

    def embed(self, x):
        return self.before(super().embed(x))

    def head(self, x):
        return super().head(self.after(x))


class Tied(Usual):
    net = TiedNet


class NarrowBlock(Block):
    def __init__(self, width, dropout):
        super().__init__(width, dropout)
        self.bfloat16()

    def forward(self, x):
        return super().forward(x.bfloat16()).float()


class Narrow(Usual):
    """A block in half of the others' precision."""

    def build_model(self, options):
        net = super().build_model(options)
        net.layers[1] = NarrowBlock(8, 0.0)
        return net


class CountingNet(OddNet):
    def __init__(self, **options):
        super().__init__(**options)
        self.register_buffer("passes", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mask", torch.ones(8, dtype=torch.bool))

    def forward(self, x):
        if self.training:
            self.passes += 1
        return super().forward(x)


class Counting(Usual):
    net = CountingNet


class ComplexNet(OddNet):
    def __init__(self, **options):
        super().__init__(**options)
        self.turn = nn.Parameter(torch.eye(8, dtype=torch.complex64))

    def head(self, x):
        return super().head((x.to(torch.complex64) @ self.turn).real)


class Complex(Usual):
    net = ComplexNet


class Ends(Points):
    def __getitem__(self, index):
        if index >= 20:
            raise IndexError("there are twenty")
        return super().__getitem__(index)


class EndsEarly(Usual):
    def build_data(self, split, options):
        return Ends(0, 37) if split == "train" else super().build_data(split, options)


class RaggedPoints(Points):
    def __getitem__(self, index):
        return super().__getitem__(index) | {"extra": torch.zeros(1 + index % 3)}


class Ragged(Usual):
    def build_data(self, split, options):
        return RaggedPoints(0, 37)


class Closure(Usual):
    def build_optimizer(self, model, options):
        return torch.optim.LBFGS(model.parameters())


class NoOptimizer(Usual):
    def build_optimizer(self, model, options):
        return None


class AllFrozen(Usual):
    def build_model(self, options):
        return super().build_model(options).requires_grad_(False)


class Detached(Usual):
    def loss(self, outputs, batch):
        return super().loss(outputs.detach(), batch)


class Plain(Usual):
    def loss(self, outputs, batch):
        found = super().loss(outputs, batch)
        return Loss(total=float(found.total), weight=found.weight)


class Synced(Usual):
    def build_model(self, options):
        return nn.SyncBatchNorm.convert_sync_batchnorm(super().build_model(options | {"norm": True}))


class EvaluationFails(Usual):
    def evaluate(self, model, batch):
        raise ValueError("the measure's own mistake")


class EvaluationIsNumber(Usual):
    def evaluate(self, model, batch):
        return {"accuracy": 0.5}


class EvaluationChanges(Usual):
    def evaluate(self, model, batch):
        self.calls = getattr(self, "calls", 0) + 1
        return {f"accuracy_{self.calls}": (1.0, 2.0)}


class NotFiniteLater(Usual):
    def loss(self, outputs, batch):
        found = super().loss(outputs, batch)
        return found if torch.is_grad_enabled() else Loss(total=found.total * float("nan"), weight=found.weight)


class NanBlock(Block):
    def forward(self, x):
        weight = self.outer.weight.clone()
        if weight.requires_grad:
            weight.register_hook(lambda grad: torch.cat([grad[:1] * float("nan"), grad[1:]]))
        return x + self.drop(linear(torch.tanh(self.inner(x)), weight, self.outer.bias))


class NanGradient(Usual):
    """The first row of one weight has NaN as its gradient."""

    def build_model(self, options):
        net = super().build_model(options)
        net.layers[1] = NanBlock(8, 0.0)
        return net
