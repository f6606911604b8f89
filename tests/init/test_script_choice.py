"""Which script of several is taken, and what is said of the others."""

import pytest

from gangline.init.line_guess import guess_line

MAIN = '\nif __name__ == "__main__":\n    main()\n'
TRAIN = "import torch\ndef main():\n    loss.backward()\n" + MAIN
RANKS = "import torch, torch.distributed as d\ndef main():\n    d.init_process_group()\n    loss.backward()\n" + MAIN


def of(files, **more):
    return guess_line({path: text.encode() for path, text in files.items()}, folder="demo", **more)


@pytest.mark.parametrize(
    ("others", "wanted"),
    [
        (["legacy_train.py"], "train.py"),
        (["old_train.py", "train_old.py"], "train.py"),
        (["base_train.py", "train_gpt.py"], "train.py"),
        (["pretrain.py", "main.py"], "train.py"),
        (["pretrain.py", "finetune.py"], "main.py"),
        (["main_finetune.py", "main_linprobe.py"], "main_pretrain.py"),
        (["tutorials/train.py"], "deep/in/a/package/fit_model.py"),
        (["extensions/thunder/pretrain.py"], "scripts/base_train.py"),
        (["examples/train.py", "benchmarks/train.py"], "lib/run.py"),
        (["third_party/train.py", "vendor/train.py"], "cli/main.py"),
    ],
)  # fmt: skip
def test_a_name_that_is_a_likely_word_comes_before_one_that_has_it_and_old_ones_come_last(others, wanted):
    guess = of(dict.fromkeys([*others, wanted], TRAIN))
    assert guess.script.path == wanted
    assert {each.path for each in guess.others} == set(others)
    late = dict.fromkeys(others, RANKS) | {wanted: TRAIN}
    is_late = all("/" in each or "old" in each or "legacy" in each for each in others)
    assert not is_late or of(late).script.path == wanted, "whatever its framework"


def test_scripts_that_are_as_likely_are_a_question():
    guess = of({"ppo.py": TRAIN, "dqn.py": TRAIN})
    why = next(key.why for key in guess.keys if key.name == "command")
    assert why == "? others are as likely, --script chooses; torch"
    alone = of({"ppo.py": TRAIN, "dqn.py": TRAIN}, script="dqn.py")
    assert next(key.why for key in alone.keys if key.name == "command") == "torch"


def test_a_module_of_a_package_that_nothing_starts_is_no_script():
    package = {"lib/__init__.py": "", "lib/train.py": "import torch\nlog = open('x')\ndef fit(): loss.backward()\n"}
    assert of(package | {"go.py": TRAIN}).script.path == "go.py"
    assert of(package | {"go.py": TRAIN}).others == ()


GROUP = """\
import click
@click.group()
def cli(): pass
@cli.command(help="Start the training.")
@click.option("--lr", default=0.1)
def train(lr): loss.backward()
@cli.command("show-it")
def show(): pass
def main():
    cli()
"""
TABLE = "from jsonargparse import CLI\nP = {'chat': f, 'pretrain': setup}\ndef main():\n    CLI(P)\n"
PARSER = "import argparse\ndef main():\n    s = p.add_subparsers()\n    s.add_parser('fit')\n    s.add_parser('x')\n"
NONE = """\
import typer
app = typer.Typer()
loaders = {"train": 1}
@app.command()
def train(): loss.backward()
def main():
    app()
"""


@pytest.mark.parametrize(
    ("cli", "words"), [(GROUP, ["train"]), (TABLE, ["pretrain"]), (PARSER, ["fit"]), (NONE, [])],
)  # fmt: skip
def test_a_sub_command_that_trains_is_a_word_of_the_command(cli, words):
    project = '[project]\nname = "p"\n[project.scripts]\nmodel-cli = "p.cli:main"\n'
    files = {"pyproject.toml": project, "p/__init__.py": "", "p/cli.py": cli, "p/pre.py": "def setup(): x.backward()\n"}
    guess = of(files)
    command = next(key for key in guess.keys if key.name == "command")
    assert command.value == ["python", "-c", "from p.cli import main; main()", *words]
    assert command.is_known == (not words)
    other = of(files | {"train.py": RANKS})
    offered = [note for note in other.notes if "sub-command" in note]
    assert other.script.path == "train.py"
    assert len(offered) == len(words)
    for note, word in zip(offered, words, strict=True):
        assert note.startswith(f"model-cli of pyproject.toml has a sub-command {word}: project.command = [")
        assert f'"from p.cli import main; main()", "{word}"] and its arguments' in note


def test_a_package_that_runs_as_a_module_is_started_so():
    project = '[project.scripts]\nlit = "lit.__main__:main"\n'
    guess = of({"pyproject.toml": project, "lit/__init__.py": "", "lit/__main__.py": f"{TABLE}{MAIN}"})
    assert next(key.value for key in guess.keys if key.name == "command") == ["python", "-m", "lit", "pretrain"]


def test_an_entry_point_of_a_workspace_member_is_read_with_its_folder():
    files = {
        "pyproject.toml": '[tool.uv.workspace]\nmembers = ["packages/*"]\n',
        "packages/one/pyproject.toml": '[project.scripts]\none-train = "one.cli:main"\n',
        "packages/one/src/one/__init__.py": "",
        "packages/one/src/one/cli.py": "import torch\ndef main():\n    loss.backward()\n",
    }
    found = {key.name: (key.value, key.why) for key in of(files).keys}
    assert found["command"] == (
        ["python", "-c", "from one.cli import main; main()"], "one-train of packages/one/pyproject.toml",
    )  # fmt: skip
    assert found["path"][0] == ["packages/one/src"]
