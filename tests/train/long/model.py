"""Tasks over sequences of tokens: attention that looks along them, and layers of experts."""

from dataclasses import replace

import torch
from torch import nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

from gangline.train import Loss, ParallelHints
from gangline.train.attention import attention
from gangline.train.moe import Experts, MoE

TOKENS = 11


class Block(nn.Module):
    attend = staticmethod(scaled_dot_product_attention)

    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.head_width = heads, width // heads
        self.norm = nn.LayerNorm(width)
        self.mix = nn.Linear(width, 3 * width, bias=False)  # a bias of keys has a gradient of rounding errors alone
        self.back = nn.Linear(width, width)
        self.inner, self.outer = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        query, key, value = self.mix(self.norm(x)).unflatten(-1, (-1, 3, self.head_width)).permute(3, 0, 2, 1, 4)
        mixed = self.attend(query, key, value, is_causal=True)
        x = x + self.back(mixed.transpose(1, 2).flatten(2))
        return x + self.outer(torch.tanh(self.inner(x)))


class OwnBlock(Block):
    attend = staticmethod(attention)


class Deaf(nn.Module):
    """Attends in no way that can be seen."""

    def __init__(self, width, heads):
        super().__init__()
        self.outer = nn.Linear(width, width)

    def forward(self, x):
        return x + torch.softmax(x @ x.mT, -1) @ self.outer(x)


class ExpertBlock(Block):
    capacity = None

    def __init__(self, width, heads):
        super().__init__(width, heads)
        self.inner = self.outer = None
        self.moe = MoE(width, experts=4, top_k=2, hidden=8, capacity=self.capacity)

    def forward(self, x):
        query, key, value = self.mix(self.norm(x)).unflatten(-1, (-1, 3, self.head_width)).permute(3, 0, 2, 1, 4)
        x = x + self.back(self.attend(query, key, value, is_causal=True).transpose(1, 2).flatten(2))
        mixed, balance = self.moe(x)
        return x + mixed, balance


class Net(nn.Module):
    block = Block

    def __init__(self, width=16, heads=4, layers=2, length=16):
        super().__init__()
        self.token, self.place = nn.Embedding(TOKENS, width), nn.Embedding(length, width)
        self.layers = nn.ModuleList(self.block(width, heads) for _ in range(layers))
        self.head = nn.Linear(width, TOKENS)

    def embed(self, tokens, positions=None):
        if positions is None:
            positions = torch.arange(tokens.shape[1]).expand(tokens.shape)
        return self.token(tokens) + self.place(positions)

    def forward(self, tokens, positions=None):
        x = self.embed(tokens, positions)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class OwnNet(Net):
    block = OwnBlock


class DeafNet(Net):
    block = Deaf


class LostNet(Net):
    def forward(self, tokens):
        return super().forward(tokens)


class Encoder(Net):
    @staticmethod
    def block(width, heads):
        return nn.TransformerEncoderLayer(width, heads, 2 * width, dropout=0.0, batch_first=True)


class ExpertNet(Net):
    block = ExpertBlock

    def forward(self, tokens, positions=None):
        x, total = self.embed(tokens, positions), 0.0
        for layer in self.layers:
            x, balance = layer(x)
            total = total + balance
        return self.head(x), total


class Texts:
    """Sample `i` is a function of `i`; weights of tokens are uneven on purpose."""

    def __init__(self, start, size, length):
        self.start, self.size, self.length = start, size, length

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(self.start + index)
        tokens = torch.randint(TOKENS, (self.length + 1,), generator=generator)
        weights = torch.arange(self.length) % 3 + 1.0 + index % 2
        return {"tokens": tokens[:-1], "targets": (tokens[1:] + tokens[:-1]) % TOKENS, "weights": weights}


class Long:
    net = Net
    hints = ParallelHints(
        blocks="layers.*", embed="embed", head="head", sequence={"tokens": 1, "targets": 1, "weights": -1},
        tensor={"layers.*.mix": "colwise:heads", "layers.*.back": "rowwise:heads", "layers.*.inner": "colwise",
                "layers.*.outer": "rowwise"},
    )  # fmt: skip

    def build_model(self, options):
        return self.net(**options)

    def build_data(self, split, options):
        length = options["model"].get("length", 16)
        return Texts(0, 37, length) if split == "train" else Texts(1000, 11, length)

    def loss(self, outputs, batch):
        errors = cross_entropy(outputs.flatten(0, 1), batch["targets"].flatten(), reduction="none")
        return Loss(total=errors @ batch["weights"].flatten(), weight=batch["weights"].sum())

    def evaluate(self, model, batch):
        outputs = model(**{key: batch[key] for key in ("tokens", "positions") if key in batch})
        right = outputs.argmax(-1) == batch["targets"]
        return {"right": (right.sum(), right.numel())}


class LongOwn(Long):
    net = OwnNet


class LongDeaf(Long):
    net = DeafNet


class LongLost(Long):
    net = LostNet


class LongEncoder(Long):
    net = Encoder


class LongUntold(Long):
    """Says nowhere along what a sequence may be cut."""

    hints = ParallelHints(blocks="layers.*")


class LongForgetful(Long):
    """Does not hand positions on when it evaluates."""

    def evaluate(self, model, batch):
        model(batch["tokens"])
        return {}


class LongExperts(Long):
    """Half of the loss wants experts to be used evenly: an error in it would show."""

    net = ExpertNet
    hints = replace(Long.hints, tensor={}, embed=None, head=None, experts="layers.*.moe.experts")

    def loss(self, outputs, batch):
        logits, balance = outputs
        plain = super().loss(logits, batch)
        return Loss(total=plain.total + 0.5 * balance.sum(), weight=plain.weight)

    def evaluate(self, model, batch):
        return {}


class LongExpertsElsewhere(LongExperts):
    hints = replace(LongExperts.hints, experts="layers.*.experts")


class LongExpertsRouter(LongExperts):
    """Names a module that takes tokens, not the rows of experts."""

    hints = replace(LongExperts.hints, experts="layers.*.moe")


class Level(nn.Linear):
    """All tokens find the first expert as good as any other."""

    def reset_parameters(self):
        nn.init.zeros_(self.weight)


class Idle(Experts):
    """Looks at no weight where there is nothing to do."""

    def forward(self, rows, counts):
        return super().forward(rows, counts) if len(rows) else rows


class OneExpertBlock(ExpertBlock):
    def __init__(self, width, heads):
        super().__init__(width, heads)
        self.moe.router, self.moe.top_k = Level(width, 4, bias=False), 1
        self.moe.experts = Idle(width, 8, 4)


class OneExpertNet(ExpertNet):
    block = OneExpertBlock


class LongOneExpert(LongExperts):
    """The experts of other ranks see no token in the first step."""

    net = OneExpertNet


class LongExpertsBesideTensor(LongExperts):
    hints = replace(LongExperts.hints, tensor={"layers.*.mix": "colwise:heads", "layers.*.back": "rowwise:heads"})
