"""Model repositories with a past: a small regression, one commit of which makes it worse."""

from tests.line import repositories

LINE = """\
[project]
name = "past"
task = "model:Past"
exclude = ["README.md"]
[optimizer.elementwise]
rule = "sgd"
lr = {rate}
[train]
steps = 64
global_batch = 8
strategy = "none"
ranks = 1
[evaluate]
seeds = 3
[[gate.quality]]
metric = "error"
better = "lower"
[prove]
plan = "off"
"""

MODEL = '''\
"""A line through points with noise. Version {version}."""

import torch
from torch import nn
from torch.nn.functional import mse_loss

from gangline.train import Loss


class Points:
    def __init__(self, start, size):
        generator = torch.Generator().manual_seed(start)
        self.x = torch.randn(size, 8, generator=generator)
        self.y = self.x.sum(1) + 0.1 * torch.randn(size, generator=generator)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return {{"x": self.x[index], "y": self.y[index]}}


class Past:
    def build_model(self, options):
        return nn.Sequential(nn.Linear(8, 1), nn.Flatten(0))

    def build_data(self, split, options):
        return Points(1, 256) if split == "train" else Points(2, 64)

    def loss(self, outputs, batch):
        return Loss(total=mse_loss(outputs, batch["y"], reduction="sum"), weight=len(batch["y"]))

    def evaluate(self, model, batch):
        return {{"error": ((model(batch["x"]) - batch["y"]).square().sum(), len(batch["y"]))}}
'''.replace("nn.Sequential(nn.Linear(8, 1), nn.Flatten(0))", "Line()").replace(
    "class Past:",
    """class Line(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 1)

    def forward(self, x):
        return self.linear(x).squeeze(-1)


class Past:""",
)


def make_history(folder, *, length=12, first_bad=7, broken=()):
    """Commits oldest first; from number `first_bad` on the learning rate is half of what it was."""
    repo, shas = folder, []
    for number in range(length):
        rate = 0.02 if number < first_bad else 0.01
        model = "raise SystemError('half a commit')\n" if number in broken else MODEL.format(version=number // 3)
        files = {"line.toml": LINE.format(rate=rate), "model.py": model, "README.md": f"note {number}\n"}
        if number == 0:
            repositories.make_repository(repo, files)
            shas.append(repositories.git(repo, "rev-parse", "HEAD"))
        else:
            shas.append(repositories.commit(repo, files, f"Change number {number}"))
    return shas
