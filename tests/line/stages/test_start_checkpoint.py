"""A run that starts from another one's checkpoint, whose model has fused what this one has split: on real parts."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load
from tests.line import repositories

from gangline.errors import ConfigError
from gangline.line.stages.run_line import run_line

BYTEGPT = Path(__file__).parents[3] / "examples" / "bytegpt"
SPLIT = {
    "self.wqkv = nn.Linear(width, 3 * width)":
        "self.wq, self.wk, self.wv = (nn.Linear(width, width) for _ in range(3))",
    "heads = self.wqkv(x).unflatten(-1, (-1, 3, self.head_width))":
        "heads = torch.stack([each(x).unflatten(-1, (-1, self.head_width)) for each in (self.wq, self.wk, self.wv)], 3)",
    '"layers.*.wqkv": "colwise:heads"': '"layers.*.w[qkv]": "colwise:heads"',
}  # fmt: skip
LINE = """
[project]
name = "bytegpt"
task = "model:ByteGPT"
[data]
text = ["repo:src/text.py"]
holdout = 0.02
[model]
layers = 2
width = 64
context = 32
[optimizer]
rule = "{rule}"
{options}
{route}
[optimizer.elementwise]
rule = "adamw"
lr = 1e-3
[train]
steps = 6
global_batch = 8
ranks = 2
strategy = "{strategy}"
checkpoint.every = 3
[prove]
plan = "off"
"""
HEADS = 'split = "qkv_by_group"\nheads = 2\nkv_heads = 2\nhead_dim = 32\n'
ROUTE = f'[[optimizer.route]]\nmatch = "layers.*.wqkv.weight"\n{HEADS}'
START = """
[train.start]
checkpoint = "{checkpoint}"
[[train.start.fused]]
match = "layers.*.wqkv.*"
parts = ["layers.*.wq.*", "layers.*.wk.*", "layers.*.wv.*"]
"""
OPTIONS = {"muon": 'dtype = "float32"\nlr = 0.02', "soap": "refresh_every = 2\nlr = 3e-3"}


def commit(desk, line, *, is_split):
    model = (BYTEGPT / "model.py").read_text()
    for fused, split in SPLIT.items() if is_split else ():
        assert fused in model
        model = model.replace(fused, split)
    text = "the quick brown fox jumps over the lazy dog\n" * 400
    repositories.commit(desk.repo, {"model.py": model, "src/text.py": text, "line.toml": line})
    return run_line(desk.repo, **desk.where, observer=desk.seen)


def weights(desk, record):
    """Published ones, fused."""
    [key] = [each.key for each in record.artifacts if each.kind == "model"]
    found = load(desk.store.get(key).data)
    for name in [each for each in found if ".wq." in each]:
        parts = [found.pop(name.replace(".wq.", f".w{each}.")).unflatten(0, (2, 32)) for each in "qkv"]
        found[name.replace(".wq.", ".wqkv.")] = torch.stack(parts, 1).flatten(0, 2)
    return found


def losses(desk, record):
    lines = desk.store.get(f"{record.gang_prefix}/metrics.jsonl")
    assert lines is not None
    return {each["step"]: each["loss"] for each in map(json.loads, lines.data.splitlines())}


@pytest.mark.timeout(300)
@pytest.mark.long
@pytest.mark.parametrize("rule", OPTIONS)
def test_a_split_model_goes_on_with_what_a_fused_one_trained(desk, monkeypatch, rule):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    options = OPTIONS[rule]
    line = LINE.format(rule=rule, options=options, route=ROUTE, strategy="ddp")
    fused = commit(desk, line, is_split=False)
    assert fused.run.verdict == "passed"
    checkpoint = f"{fused.gang_prefix}/checkpoints/step-00000003"
    start = START.format(checkpoint=checkpoint)
    line = LINE.format(rule=rule, options=options, route="", strategy="fsdp") + start
    wrong = HEADS.replace("qkv_by_group", "qkv")
    with pytest.raises(ConfigError, match=r"train\.start\.fused .* as \[\[optimizer\.route\]\] of the run of the checkp"):
        commit(desk, line + wrong, is_split=True)
    split = commit(desk, line + HEADS, is_split=True)
    assert split.run.verdict == "passed"
    begun = split.training.started_from
    assert (begun.checkpoint, begun.step, begun.converted) == (checkpoint, 3, 4)
    assert (split.training.samples.trained, split.training.samples.lost, split.training.resumes) == (24, 0, {})
    assert any(fused.run.id in each.text for each in split.events if each.kind == "start")
    wanted, found = losses(desk, fused), losses(desk, split)
    assert sorted(found) == [4, 5, 6]
    assert [found[step] for step in (4, 5, 6)] == pytest.approx([wanted[step] for step in (4, 5, 6)], rel=1e-4)
    before, after = weights(desk, fused), weights(desk, split)
    assert before.keys() == after.keys()
    assert max((after[name] - each).abs().max().item() for name, each in before.items()) < 1e-3
