"""Models that are followed without computing anything, against formulas, the real allocator, and tasks that resist."""

from dataclasses import replace

import torch
from tests.oracles.allocator import counted
from torch import nn
from torch.nn.functional import mse_loss, scaled_dot_product_attention

from gangline.measure.model_profile import trace
from gangline.measure.model_traces import sample_of, traces_of
from gangline.spec.profile import Attention
from gangline.train.task import Loss, load_task

WIDTH, LAYERS = 64, 3


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, 8)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Task:
    def build_model(self, options):
        return Net()

    def build_data(self, split, options):
        return [{"x": torch.zeros(WIDTH), "y": torch.zeros(8)}]

    def loss(self, outputs, batch):
        return Loss(total=mse_loss(outputs, batch["y"], reduction="sum"), weight=len(outputs))


def traced(task=None, precision="fp32"):
    task = task or Task()
    return trace(task, task.build_model({}), sample_of(task, {}), precision)


def test_operations_are_those_of_the_formula():
    """Two products a layer forward, twice as many backward; the first layer's input wants no gradient."""
    product = 2 * WIDTH * 4 * WIDTH
    inside = 3 * 2 * product * LAYERS - product
    assert traced().flops_per_sample == inside + 3 * 2 * WIDTH * 8


def test_equal_blocks_are_one_unit_and_the_units_are_the_whole():
    found = traced()
    assert [(each.name, each.count) for each in found.units] == [("", 1), ("layers.0", 1), ("layers.1", LAYERS - 1)]
    assert sum(each.count * each.flops for each in found.units) == found.flops_per_sample
    parameters = sum(each.numel() for each in Net().parameters())
    assert sum(each.count * each.parameters for each in found.units) == parameters
    assert found.units[2].boundary_bytes == 4 * WIDTH


def test_products_are_listed_with_their_sizes():
    sizes = {(each.rows, each.inner, each.columns): each.count for each in traced().matrices}
    assert sizes[2, WIDTH, 4 * WIDTH] == 2 * LAYERS, "up, and the gradient of what goes into down"


class Attending(nn.Module):
    """Eight heads of width 8, twice with a mask and once without."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        heads = self.inner(x).reshape(len(x), 1, WIDTH // 8, 8).transpose(1, 2).expand(-1, -1, 16, -1)
        for is_causal in (True, True, False):
            heads = scaled_dot_product_attention(heads, heads, heads, is_causal=is_causal)
        return heads.sum((1, 2))


class Attended(Task):
    def build_model(self, options):
        return Attending()


def test_fused_attention_is_listed_with_its_sizes_and_counts_as_the_operations_say():
    found = traced(Attended())
    causal = Attention(heads=8 * found.samples, queries=16, keys=16, width=8, is_causal=True, count=2)
    assert found.attention == (replace(causal, is_causal=False, count=1), causal)
    attended = sum(each.count * each.counted_flops for each in found.attention) / found.samples
    assert found.flops_per_sample == attended + 2 * 2 * WIDTH * WIDTH


def test_the_peak_is_the_allocators():
    found, task, net = traced(), Task(), Net()
    for each in net.parameters():
        each.register_post_accumulate_grad_hook(lambda parameter: setattr(parameter, "grad", None))
    batch = {"x": torch.zeros(64, WIDTH), "y": torch.zeros(64, 8)}
    with counted() as real:
        task.loss(net(batch["x"]), batch).total.backward()
    predicted = found.activation_bytes_fixed + 64 * found.activation_bytes_per_sample
    assert abs(predicted / real.peak - 1) < 0.1


def test_half_the_width_moves_fewer_bytes_for_the_same_work():
    wide, narrow = traced(), traced(precision="bf16")
    assert narrow.flops_per_sample == wide.flops_per_sample
    assert narrow.activation_bytes_per_sample < wide.activation_bytes_per_sample


class Stubborn(Task):
    def loss(self, outputs, batch):
        return Loss(total=outputs.sum() * float(outputs.max()), weight=1)


class Slow(Task):
    def build_data(self, split, options):
        import time

        time.sleep(60)


class Dead(Task):
    def build_data(self, split, options):
        import os

        os._exit(7)


class Own(Stubborn):
    def example(self, options):
        return {"x": torch.zeros(options["width"])}


FAULTY = """
from torch import nn
class Model(nn.Linear):
    def forward(self, x):
        x = x.flatten()
        return super().forward(x)
class Faulty:
    def build_model(self, options): return Model(4, 4)
    def build_data(self, split, options): pass
    def loss(self, outputs, batch): pass
    def example(self, options):
        import torch
        return {"x": torch.zeros(5)}
"""


def test_a_model_that_cannot_be_followed_says_why():
    found = traces_of(Stubborn(), {})
    assert found["traces"] == []
    assert "raised DataDependentOutputException" in found["untraced"] or "raised RuntimeError" in found["untraced"]


def test_the_call_of_the_code_layer_that_raised_is_named(tmp_path, monkeypatch):
    (tmp_path / "faulty.py").write_text(FAULTY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    found = traces_of(load_task("faulty:Faulty"), {})
    assert found["untraced"].startswith("forward (faulty.py:6) raised RuntimeError: a and b must have same reduction")


def test_no_one_waits_for_a_task_that_hangs_or_dies():
    nothing = {"traces": [], "unstaged": ""}
    assert traces_of(Slow(), {}, seconds=0.5) == nothing | {"untraced": "tracing a step took over 0 s"}
    assert traces_of(Dead(), {}) == nothing | {"untraced": "the process that traced a step died"}


class Named(Task):
    def build_data(self, split, options):
        self.seen = [path.rpartition("/")[2] for path in options["text"]]
        return [{"x": torch.zeros(WIDTH)}]


def test_stand_ins_are_called_like_the_files_of_the_data():
    task = Named()
    sample_of(task, {}, ["b/two.csv", "a/one.csv", "c.shard", *(f"z/{number}.csv" for number in range(100))])
    assert task.seen[:2] == ["one.csv", "two.csv"]
    assert len(task.seen) == 8
    sample_of(task, {})
    assert task.seen == ["text.txt"]


def test_a_task_may_show_a_sample_instead_of_its_data():
    assert sample_of(Own(), {"width": 5})["x"].shape == (5,)
