"""A run that starts from another one's checkpoint, whose model has fused what this one has split: on real parts."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load
from tests.line import repositories

from gangline.checkpoint.saver import Saver
from gangline.errors import ConfigError, IntegrityError
from gangline.line.gangs import launchers
from gangline.line.stages.preview import preview
from gangline.line.stages.run_line import run_line
from gangline.line.stages.start_checkpoint import open_start
from gangline.spec.config.line import Line, ProjectTable, TrainTable
from gangline.spec.config.load import load_line_text
from gangline.spec.plan import FusedParameter, StartCheckpoint
from gangline.spec.profile import ModelProfile, NamedParameter

BYTEGPT = Path(__file__).parents[3] / "examples" / "bytegpt"
SPLIT = {
    "self.wqkv = nn.Linear(width, 3 * width)":
        "self.wq, self.wk, self.wv = (nn.Linear(width, width) for _ in range(3))\n"
        "        self.qkv = lambda: (self.wq, self.wk, self.wv)",
    "heads = self.wqkv(x).unflatten(-1, (-1, 3, self.head_width))":
        "heads = torch.stack([each(x).unflatten(-1, (-1, self.head_width)) for each in self.qkv()], 3)",
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
ROUNDING = {"muon": 1e-7, "soap": 2e-5}
"""Mean difference of a weight: products of a fused layer are added up in another order; measured 7.9e-9 and 7.0e-6."""
OPTIONS = {"muon": 'dtype = "float32"\nlr = 0.02', "soap": "refresh_every = 2\nlr = 3e-3"}


def commit(workspace, line, *, is_split):
    model = (BYTEGPT / "model.py").read_text()
    for fused, split in SPLIT.items() if is_split else ():
        assert fused in model
        model = model.replace(fused, split)
    text = "the quick brown fox jumps over the lazy dog\n" * 400
    repositories.commit(workspace.repo, {"model.py": model, "src/text.py": text, "line.toml": line})
    return run_line(workspace.repo, **workspace.where, observer=workspace.seen)


def weights(workspace, record):
    """Published ones, fused."""
    [key] = [each.key for each in record.artifacts if each.kind == "model"]
    found = load(workspace.store.get(key).data)
    for name in [each for each in found if ".wq." in each]:
        parts = [found.pop(name.replace(".wq.", f".w{each}.")).unflatten(0, (2, 32)) for each in "qkv"]
        found[name.replace(".wq.", ".wqkv.")] = torch.stack(parts, 1).flatten(0, 2)
    return found


def losses(workspace, record):
    lines = workspace.store.get(f"{record.gang_prefix}/metrics.jsonl")
    assert lines is not None
    return {each["step"]: each["loss"] for each in map(json.loads, lines.data.splitlines())}


@pytest.mark.timeout(300)
@pytest.mark.long
@pytest.mark.parametrize("rule", ["muon", pytest.param("soap", marks=pytest.mark.slow)])
def test_a_split_model_continues_with_what_a_fused_one_trained(workspace, monkeypatch, rule):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    options = OPTIONS[rule]
    line = LINE.format(rule=rule, options=options, route=ROUTE, strategy="ddp")
    fused = commit(workspace, line, is_split=False)
    assert fused.run.verdict == "passed"
    checkpoint = f"{fused.gang_prefix}/checkpoints/step-00000003"
    start = START.format(checkpoint=checkpoint)
    line = LINE.format(rule=rule, options=options, route="", strategy="fsdp") + start
    wrong = HEADS.replace("qkv_by_group", "qkv")
    with pytest.raises(
        ConfigError, match=r"train\.start\.fused .* as \[\[optimizer\.route\]\] of the run of the checkp"
    ):
        commit(workspace, line + wrong, is_split=True)
    split = commit(workspace, line + HEADS, is_split=True)
    assert split.run.verdict == "passed"
    begun = split.training.started_from
    assert (begun.checkpoint, begun.step, begun.converted) == (checkpoint, 3, 4)
    assert (split.training.samples.trained, split.training.samples.lost, split.training.resumes) == (24, 0, {})
    assert any(fused.run.id in each.text for each in split.events if each.kind == "start")
    assert split.ledger.seconds.get("redone", 0) == 0
    wanted, found = losses(workspace, fused), losses(workspace, split)
    assert sorted(found) == [4, 5, 6]
    assert [found[step] for step in (4, 5, 6)] == pytest.approx([wanted[step] for step in (4, 5, 6)], rel=1e-4)
    before, after = weights(workspace, fused), weights(workspace, split)
    assert before.keys() == after.keys()
    gaps = torch.cat([(after[name] - each).flatten().abs() for name, each in before.items()])
    assert gaps.mean() < ROUNDING[rule]


@pytest.fixture
def saved(workspace):
    """A run whose checkpoint of step 3 has seed 1, and what a later one opens of it, by the changes of its line."""
    record = workspace.run(until="resolve")
    torch.manual_seed(1)
    model = torch.nn.ModuleDict({"qkv": torch.nn.Linear(4, 12)})
    key = launchers.checkpoint_key(workspace.site, workspace.environ, "cheap")
    prefix = f"{record.gang_prefix}/checkpoints"
    saver = Saver(
        store=workspace.store, prefix=prefix, run=record.run.id, plan_digest="d", generation=1, key=key, group=None
    )
    saver.save(model, None, {"seed": 1}, step=3, wait=True)
    parts = torch.nn.ModuleDict({each: torch.nn.Linear(4, 4) for each in "qkv"})
    saver.save(parts, None, {"seed": 1}, step=4, wait=True)
    saver.close()

    def opened(trust="own", optimizer=None, **changes):
        start = StartCheckpoint(checkpoint=f"{prefix}/step-00000003")
        train = replace(TrainTable(steps=6, global_batch=2, start=start), **changes)
        line = Line(project=ProjectTable(name="cheap", task="model:X"), train=train, optimizer=optimizer or {})
        return open_start(line, trust, store=workspace.store, **workspace.where)

    return opened, prefix


def test_what_a_run_starts_from_is_said_before_it_is_queued(saved):
    opened, prefix = saved
    assert opened().text.startswith(f"continues from step 3 of {prefix}/step-00000003, run cheap-")
    assert opened(start=StartCheckpoint()) is None
    qkv = FusedParameter(match="qkv.*", parts=("q.*", "k.*", "v.*"), split="qkv", heads=2, kv_heads=2, head_dim=2)
    start = StartCheckpoint(checkpoint=f"{prefix}/step-00000003", fused=(qkv,))
    assert opened(start=start).text.endswith("; 2 fused parameters are split or joined")


def model_with(**shapes):
    named = tuple(NamedParameter(name=name.replace("_", "."), shape=shape) for name, shape in shapes.items())
    return ModelProfile(parameters=60, named=named)


def test_checkpoint_of_another_model_is_refused_before_a_gang_starts(saved):
    opened, prefix = saved
    fused, parts = {"qkv_weight": (12, 4), "qkv_bias": (12,)}, {f"{each}_weight": (4, 4) for each in "qkv"}
    opened().require_shapes(model_with(**fused))
    opened().require_shapes(ModelProfile(parameters=60))
    opened().require_shapes(None)
    for shapes, message in (
        (fused | {"qkv_bias": (8,)}, r"qkv\.bias of shape \(8,\), as the model has it.*in shape \(12,\)"),
        (parts, r"q\.weight of shape \(4, 4\).*not in the checkpoint and 2 more"),
    ):
        with pytest.raises(ConfigError, match=rf"train\.start\.checkpoint.*{message}"):
            opened().require_shapes(model_with(**shapes))
    rule = FusedParameter(match="qkv.*", parts=("q.*", "k.*", "v.*"), split="qkv", heads=2, kv_heads=2, head_dim=2)
    start = StartCheckpoint(checkpoint=f"{prefix}/step-00000003", fused=(rule,))
    opened(start=start).require_shapes(model_with(**parts))
    with pytest.raises(ConfigError, match=r"q\.weight of shape \(5, 4\)"):
        opened(start=start).require_shapes(model_with(**parts | {"q_weight": (5, 4)}))


def test_plan_looks_at_what_a_run_would_start_from(saved, workspace):
    _, prefix = saved
    text = (
        '[project]\nname = "cheap"\ntask = "model:Tiny"\n[train]\nsteps = 6\nglobal_batch = 8\n[prove]\nplan = "off"\n'
    )
    repositories.commit(workspace.repo, {"model.py": "class Tiny: pass", "line.toml": text})
    of = {"parameters": 48, "named": [{"name": "qkv.weight", "shape": [12, 4]}]}
    for step, shape, message in (
        (5, [12, 4], "which is not in the store"),
        (3, [9, 4], r"qkv\.weight of shape \(9, 4\), as the model has it"),
        (3, [12, 4], None),
    ):
        overrides = [f'train.start.checkpoint="{prefix}/step-{step:08}"']
        of["named"][0]["shape"] = shape
        repositories.settle_inventory(workspace.repo, profile=of, overrides=overrides)
        if message is None:
            assert (
                preview(workspace.repo, **workspace.where, overrides=overrides)
                .problems[0]
                .startswith("continues from step 3")
            )
        else:
            with pytest.raises(ConfigError, match=rf"train\.start\.checkpoint.*{message}"):
                preview(workspace.repo, **workspace.where, overrides=overrides)


def test_rows_that_a_route_denies_are_refused(saved):
    """By this line, which joins what the checkpoint has in parts; the long test has a run that saved fused ones."""
    opened, prefix = saved
    route = {"match": "qkv.*", "split": "qkv_by_group", "heads": 2, "kv_heads": 2, "head_dim": 2}
    rule = FusedParameter(match="qkv.*", parts=("q.*", "k.*", "v.*"), split="qkv", heads=2, kv_heads=2, head_dim=2)
    for fused, routes in ((rule, [route]), (replace(rule, split="qkv_by_group", heads=4, kv_heads=1), [route])):
        start = StartCheckpoint(checkpoint=f"{prefix}/step-00000004", fused=(fused,))
        with pytest.raises(ConfigError, match=r"train\.start\.fused 'qkv\.\*'.*route\]\] of this line has for qkv\."):
            opened(start=start, optimizer={"route": routes})
    start = StartCheckpoint(checkpoint=f"{prefix}/step-00000004", fused=(replace(rule, split="qkv_by_group"),))
    assert opened(start=start, optimizer={"route": [route]}).text.endswith("2 fused parameters are split or joined")


@pytest.mark.parametrize("override", ["evaluate.seeds=3", "prove.replay_steps=2"])
def test_line_that_starts_from_a_checkpoint_has_no_first_steps_to_repeat(override):
    start = START.format(checkpoint=f"runs/bytegpt/{'a' * 40}/x/gang/checkpoints/step-00000003")
    text = LINE.format(rule="muon", options="", route="", strategy="ddp") + start + HEADS
    assert load_line_text(text, file="line.toml", overrides=()).train.start.fused[0].split == "qkv_by_group"
    with pytest.raises(ConfigError, match=r"with train\.start"):
        load_line_text(text, file="line.toml", overrides=(override,))


def test_start_that_cannot_be_is_refused_before_it_is_queued(saved, workspace):
    opened, prefix = saved
    other = f"runs/other/{'a' * 40}/x/gang/checkpoints/step-00000003"
    unknown = FusedParameter(match="fc1.*", parts=("gate.*", "up.*"), split="gate_up")
    for changes, message in (
        ({"steps": 3}, r"train\.steps.*more than the 3 of the checkpoint"),
        ({"stop_at": 2}, r"train\.steps.*more than the 3"),
        ({"seed": 2}, r"train\.seed.*1, as the run of the checkpoint has"),
        ({"trust": "fork"}, "nothing in a fork's line"),
        ({"start": StartCheckpoint(checkpoint=f"{prefix}/step-00000005")}, "which is not in the store"),
        ({"start": StartCheckpoint(checkpoint=other)}, "a checkpoint of a run of this project"),
        (
            {
                "start": StartCheckpoint(
                    checkpoint=other.replace("other", "cheap").replace("/x/", "/cheap-aaaaaaaa-bcdefg/")
                )
            },
            "no run",
        ),
        ({"start": StartCheckpoint(checkpoint=f"{prefix}/step-00000003", fused=(unknown,))}, "matches a parameter"),
    ):
        with pytest.raises(ConfigError, match=message):
            opened(**changes)
    key = next(each.key for each in workspace.store.list(f"{prefix}/step-00000003") if "index" in each.key)
    workspace.store.put(key, workspace.store.get(key).data.replace(b"qkv.bias", b"qkv.bios"))
    with pytest.raises(IntegrityError, match=r"index\.json"):
        opened()
