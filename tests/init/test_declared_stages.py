"""Trainings that a repository declares for DVC or MLflow, as the guess of its line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.data.recorded import RECORDINGS, VERSIONS

from gangline.init.declared_stages import declared_stages
from gangline.init.line_guess import guess_line, line_text
from gangline.spec.config.load import load_line

TRAIN = """\
import argparse, json, yaml
from sklearn.ensemble import RandomForestClassifier
parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--epochs", type=int, default=3)
RandomForestClassifier().fit(x, y)
"""
DVC = """\
stages:
  prepare:
    cmd: python src/prepare.py data/raw.xml
    deps: [data/raw.xml, src/prepare.py]
    outs: [data/prepared]
  train:
    cmd: python src/train.py --epochs ${train.epochs} --seed ${train.seed} --lr ${ lr }
    deps: [data/prepared, src/train.py]
    params: [train, lr]
    outs:
    - models/model.pkl: {cache: false}
    - checkpoints
    - ../elsewhere
    metrics:
    - eval/scores.json: {cache: false}
  evaluate:
    cmd: python src/evaluate.py
    metrics: [eval/late.json]
"""
PARAMS = "lr: 0.1\ntrain: {epochs: 40, seed: 20, batch_size: 16}\n"
FILES = {"src/prepare.py": "import xml\n", "src/train.py": TRAIN, "src/evaluate.py": "import json\njson.dump(1, f)\n"}


def of(files, **more):
    return guess_line({path: text.encode() for path, text in files.items()}, folder="demo", **more)


def values(guess):
    return {f"{key.table}.{key.name}": key.value for key in guess.keys}


def test_the_stage_that_trains_and_writes_metrics_gives_command_outputs_and_numbers(tmp_path):
    guess = of(FILES | {"dvc.yaml": DVC, "params.yaml": PARAMS})
    assert values(guess) == {
        "project.name": "demo",
        "project.command": ["python", "src/train.py", "--epochs", "40", "--seed", "{seed}", "--lr", "0.1"],
        "project.metrics": "eval/scores.json", "project.outputs": ["models/model.pkl", "checkpoints/**"],
        "project.distributed": False, "train.steps": 100, "train.global_batch": 16,
        "train.seed": 0,
    }  # fmt: skip
    assert next(key.why for key in guess.keys if key.name == "command") == "train of dvc.yaml"
    said = "a run does not start prepare of dvc.yaml, evaluate of dvc.yaml: what train needs of them has to be in the"
    assert any(note.startswith(said) for note in guess.notes)
    assert any("it counts 40 epochs" in key.why for key in guess.keys)
    (tmp_path / "line.toml").write_text(line_text(guess))
    assert load_line(tmp_path).project.metrics == "eval/scores.json"


def test_data_that_a_stage_needs_and_git_ignores_are_named():
    guess = of(FILES | {"dvc.yaml": DVC, "params.yaml": PARAMS}, leaves_out=lambda path: path == "data/prepared")
    assert any("git ignores data/prepared" in note for note in guess.notes)


MLPROJECT = """\
name: demo
entry_points:
  load:
    command: "python load.py"
  main:
    parameters:
      max_steps: {type: int, default: 300}
      path: string
      data: {type: path, default: corpus}
    command: "python -m pkg.train --steps {max_steps} {data} {path}"
"""


def test_an_entry_point_of_mlflow_gives_its_command_and_asks_for_what_has_no_value():
    package = {"pkg/__init__.py": "", "pkg/train.py": TRAIN, "load.py": "import urllib\n"}
    guess = of(package | {"MLproject": MLPROJECT})
    assert values(guess)["project.command"] == [
        "python", "-m", "pkg.train", "--steps", "300", "corpus", "?", "--seed", "{seed}",
    ]  # fmt: skip
    assert [key.name for key in guess.keys if not key.is_known] == ["command", "global_batch"]
    assert values(guess)["train.steps"] == 300


@pytest.mark.parametrize(
    "command",
    ["python a.py && python b.py", "CUDA_VISIBLE_DEVICES=0 python src/train.py", "make train", "python $HOME/train.py",
     "python 'src/train.py", "python -c 'print(1)'", "python missing.py"],
)  # fmt: skip
def test_a_command_for_a_shell_or_of_no_script_is_not_taken_and_said(command):
    text = f"stages:\n  train:\n    cmd: >-\n      {command}\n    metrics: [m.json]\n"
    guess = of(FILES | {"dvc.yaml": text})
    assert values(guess)["project.command"] == ["python", "src/train.py", "--seed", "{seed}"]
    said = "no command of train of dvc.yaml is one script of Python without a shell: none was taken"
    assert said in guess.notes


def test_a_script_that_was_chosen_keeps_its_own_stage_alone():
    files = FILES | {"dvc.yaml": DVC, "params.yaml": PARAMS, "src/other.py": TRAIN}
    assert values(of(files, script="src/other.py"))["project.command"] == [
        "python", "src/other.py", "--seed", "{seed}",
    ]  # fmt: skip
    assert "project.metrics" in values(of(files, script="src/train.py"))


@pytest.mark.parametrize("text", ["stages: [", "\x00", "!!python/object/apply:os.system ['touch run']", "[" * 5000])
def test_a_file_that_is_not_yaml_is_named_and_runs_nothing(text):
    guess = of(FILES | {"dvc.yaml": text})
    assert any(note.startswith("dvc.yaml is not read: no YAML") for note in guess.notes)
    assert values(guess)["project.command"][1] == "src/train.py"


BOMB = "\n".join(f"a{i}: &a{i} {{{', '.join(f'k{j}: *a{i - 1}' for j in range(9))}}}" for i in range(1, 30))


@pytest.mark.parametrize("text", ["a: &a {b: *a}", f"a0: &a0 {{x: 1}}\n{BOMB}"])
def test_tables_in_tables_without_an_end_are_named(text):
    guess = of(FILES | {"dvc.yaml": DVC, "params.yaml": text})
    assert (
        "dvc.yaml is not read: params.yaml has more than 10000 values, or tables in tables without an end"
        in guess.notes
    )


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(["python train.py", "cmd"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["stages", "entry_points", "cmd", "command", "outs", "metrics", "params",
                                       "parameters", "deps", "wdir", "train"]) | st.integers(), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(content=plain)
def test_whatever_such_a_file_holds_its_stages_are_read_or_it_is_named(content):
    import yaml

    for name in ("dvc.yaml", "MLproject"):
        for wrapped in (content, {"stages": {"a": content}, "entry_points": {"b": content}}):
            stages, notes = declared_stages({name: yaml.safe_dump(wrapped).encode(), "train.py": b""})
            assert notes == []
            assert all(each.words == () or each.script == "train.py" for each in stages)


@pytest.mark.parametrize("version", VERSIONS)
def test_data_of_dvc_are_noted_with_the_source_that_the_site_needs(version):
    recorded = {
        str(path.relative_to(RECORDINGS / version / "repo")): path.read_text()
        for path in (RECORDINGS / version / "repo").rglob("*") if path.is_file()
    }  # fmt: skip
    reads = 'open("data/train.csv"), open("features/count.csv"), open("raw/labels.csv")\n'
    guess = of({"train.py": TRAIN + reads} | recorded, script="train.py", root="/home/me/repo", leaves_out=bool)
    assert [note for note in guess.notes if "source.dvc" in note] == [
        (
            "DVC tracks data/images, data/test.csv and 1 more: a run has them once site.toml names their remote:"
            ' [source.dvc] url = "file:///home/me/remote"'
        ),
        (
            'dvc.lock has what other stages wrote; a run gets it by project.include = ["**", "features/**"] and'
            ' [source.dvc] url = "file:///home/me/remote" of site.toml'
        ),
    ]
    (ignored,) = [note for note in guess.notes if "git ignores" in note]
    assert ignored.startswith("git ignores raw/labels.csv, which"), "a run finds what DVC tracks"


def test_a_file_of_dvc_that_is_none_is_a_note():
    guess = of({"train.py": TRAIN, ".dvc/config": "[core]\n", "a.dvc": "outs: ["})
    assert [note for note in guess.notes if note.startswith("data of DVC are not found: a.dvc: wanted YAML")]
