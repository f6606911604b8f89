"""The line that is guessed for scripts of every kind, from their text alone."""

import tomllib

import pytest

from gangline.errors import ConfigError, UsageError
from gangline.init.line_guess import guess_line, line_text
from gangline.spec.config.load import load_line

MAIN = '\nif __name__ == "__main__":\n    main()\n'
DDP = """\
import argparse, os, torch
import torch.distributed as dist
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank = int(os.environ["LOCAL_RANK"])
    loss.backward()
"""
SCRIPTS = {
    "torchrun": DDP,
    "transformers": "from transformers import Trainer, TrainingArguments\ndef main():\n"
    "    args = TrainingArguments(output_dir='out', max_steps=40, per_device_train_batch_size=8)\n"
    "    Trainer(args=args).train()\n",
    "lightning": "import lightning as L\ndef main():\n    L.Trainer(max_epochs=2).fit(model)\n",
    "accelerate": "from accelerate import Accelerator\ndef main():\n    accelerator = Accelerator()\n"
    "    accelerator.backward(loss)\n",
    "spawns": "import torch, torch.multiprocessing as mp\nimport torch.distributed as dist\n"
    "def main():\n    mp.spawn(work, nprocs=2)\n    dist.init_process_group('gloo')\n    loss.backward()\n",
    "jax": "import jax\ndef main():\n    jax.value_and_grad(loss)(w)\n",
    "xgboost": "import xgboost as xgb\ndef main():\n    xgb.train({}, data, num_boost_round=30)\n",
    "sklearn": "from sklearn.linear_model import LogisticRegression\ndef main():\n    LogisticRegression().fit(x, y)\n",
    "keras": "import keras\ndef main():\n    keras.Sequential().fit(x, y, epochs=2)\n",
    "torch": "import torch\nmax_steps = 70\ndef main():\n    loss.backward()\n",
    "gangline": "from gangline.train import Program\ndef main():\n    with Program() as p:\n        p.step(loss=1.0)\n",
}
SHARE = {"torchrun", "transformers", "accelerate", "gangline"}


def of(files, **more):
    return guess_line({path: text.encode() for path, text in files.items()}, folder="My Model_2", **more)


def values(guess):
    return {f"{key.table}.{key.name}": key.value for key in guess.keys}


@pytest.mark.parametrize("kind", SCRIPTS)
def test_each_kind_of_script_is_known_and_its_line_holds(kind, tmp_path):
    guess = of({"train.py": SCRIPTS[kind] + MAIN})
    assert guess.script.kind == kind
    text = line_text(guess)
    (tmp_path / "line.toml").write_text(text)
    line = load_line(tmp_path)
    assert line.project.command[:2] == ("python", "train.py")
    assert line.project.distributed == (kind in SHARE), "a script that shares nothing runs once"
    assert len([each for each in text.splitlines() if each and not each.startswith("#")]) <= 10


def test_options_of_the_command_line_give_batch_and_seed_and_what_is_not_known_is_asked():
    guess = of({"train.py": DDP + MAIN})
    assert values(guess) == {
        "project.name": "my-model-2", "project.command": ["python", "train.py", "--seed", "{seed}"],
        "train.steps": 100, "train.global_batch": 64, "train.seed": 0,
    }  # fmt: skip
    assert [key.name for key in guess.keys if not key.is_known] == ["steps"]


@pytest.mark.parametrize(
    ("module", "said"),
    [("lightning", "a callback gives a curve"), ("torch", "three lines of Program give a curve")],
)
def test_what_gives_a_curve_is_named_by_the_library(module, said):
    guess = of({"train.py": f"import {module}\nloss.backward()\n{MAIN}"})
    assert any(note.endswith(said) for note in guess.notes), guess.notes


ACCUMULATES = """\
batch_size = 6
grad_accum_steps = 2 * 5
if "RANK" in os.environ:
    workers = int(os.environ["WORLD_SIZE"])
    grad_accum_steps //= workers
"""
BARE = """\
import os, torch
import torch.distributed as dist
def main():
    dist.init_process_group("gloo")
    loss.backward()
"""


@pytest.mark.parametrize(
    ("says", "batch", "why"),
    [
        (
            ACCUMULATES.replace("//= workers", "//= world_size"),
            60,
            "x grad_accum_steps of train.py, shared by its ranks",
        ),
        (ACCUMULATES.replace("//= workers", "//= int(os.environ['WORLD_SIZE'])"), 60, "shared by its ranks"),
        (ACCUMULATES, 120, "if it has 2 ranks"),
        ("batch_size = 64\nbatch_size = batch_size // dist.get_world_size()\n", 64, "batch_size of train.py, shared"),
        (
            "add_argument('--batch-size', default=3)\nadd_argument('--accumulation-steps', default=4)\n",
            24,
            "if it has 2 ranks",
        ),
        ("batch_size = 6\naccum_steps = 1\n", 12, "batch_size of train.py, if it has 2 ranks"),
    ],
)
def test_the_global_batch_has_the_passes_that_are_accumulated_and_ranks_that_do_not_share_it(says, batch, why):
    guess = of({"train.py": BARE + says + MAIN})
    found = next(key for key in guess.keys if key.name == "global_batch")
    assert found.value == batch
    assert why in found.why
    assert not any("does not include" in note for note in guess.notes)


def test_an_accumulation_that_is_not_written_out_is_reported():
    says = "batch_size = 8\naccum_steps = total // batch_size\n"
    guess = of({"train.py": BARE + says + MAIN})
    assert values(guess)["train.global_batch"] == 16
    assert "global_batch does not include accum_steps: its value in train.py is not a number" in guess.notes


def test_steps_are_read_from_arguments_and_names():
    assert values(of({"train.py": SCRIPTS["transformers"] + MAIN}))["train.steps"] == 40
    assert values(of({"train.py": SCRIPTS["torch"] + MAIN}))["train.steps"] == 70


FIELDS = """\
import torch, tyro
from dataclasses import dataclass
@dataclass
class Args:
    seed: int = 1
    total_timesteps: int = 500000
    num_steps: int = 128
    batch_size: int = 16
def main():
    args = tyro.cli(Args)
    loss.backward()
"""


def test_fields_of_a_dataclass_are_options_and_steps_of_a_rollout_are_not_those_of_the_training():
    guess = of({"ppo.py": FIELDS + MAIN})
    found = values(guess)
    assert found["project.command"] == ["python", "ppo.py", "--seed", "{seed}"]
    assert found["train.global_batch"] == 16
    assert "train.steps" in {f"{key.table}.{key.name}" for key in guess.keys if not key.is_known}
    assert not [note for note in guess.notes if "--seed" in note]


def test_options_in_camel_case_are_read():
    parser = "".join(
        f"    parser.add_argument({each})\n"
        for each in ("'--manualSeed', type=int", "'--batchSize', type=int, default=8")
    )
    found = values(of({"main.py": f"import torch\ndef main():\n{parser}    loss.backward()\n{MAIN}"}))
    assert found["project.command"] == ["python", "main.py", "--manualSeed", "{seed}"]
    assert found["train.global_batch"] == 8


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("import sys\ndef main():\n    data = sys.argv[1]\n    x.fit(data)\n", "train.py reads sys.argv"),
        ("import sys\ndef main():\n    assert len(sys.argv) == 3\n    x.fit()\n", "train.py reads sys.argv"),
        (
            "import hydra\n@hydra.main(version_base=None)\ndef main(cfg):\n    x.fit()\n",
            "further words of project.command",
        ),
    ],
)
def test_a_script_whose_words_are_not_read_from_its_text_is_said_to_take_some(text, says):
    notes = of({"train.py": f"import sklearn\n{text}{MAIN}"}).notes
    assert any(says in note for note in notes)
    assert any("no option --seed was found in train.py" in note for note in notes) == ("hydra" not in text)


def test_a_script_that_reads_the_seed_of_the_environment_is_not_asked_to():
    text = "import os, sklearn\nseed = int(os.environ.get('GANGLINE_SEED', 0))\ndef main():\n    x.fit(seed)\n"
    assert not [note for note in of({"train.py": f"{text}{MAIN}"}).notes if "--seed" in note]


PACKAGE = {
    "pyproject.toml": '[project.scripts]\nbad = 3\nshow = "p.show:app.run"\nmytrain = "p.cli:main"\n',
    "src/p/__init__.py": "",
    "src/p/cli.py": 'import argparse\ndef main():\n    argparse.ArgumentParser().add_argument("--seed")\n',
    "src/p/show.py": "def app(): pass\n",
}


def test_what_hydra_writes_goes_to_one_folder_that_is_kept():
    text = "import hydra\n@hydra.main(version_base=None)\ndef main(cfg):\n    x.fit()\n"
    found = values(of({"train.py": text + MAIN}))
    assert found["project.command"] == ["python", "train.py", "hydra.run.dir=out"]
    assert found["project.outputs"] == ["out/**"]
    composed = "import hydra\nhydra.compose('c')\nx.fit()\n"
    assert values(of({"train.py": composed + MAIN}))["project.command"] == ["python", "train.py"]


def test_a_console_script_is_called_by_its_function_without_an_installation():
    guess = of(PACKAGE)
    found = values(guess)
    assert found["project.command"] == ["python", "-c", "from p.cli import main; main()", "--seed", "{seed}"]
    assert found["project.path"] == ["src"]
    assert not [note for note in guess.notes if "only defines" in note]
    poetry = PACKAGE | {"pyproject.toml": '[tool.poetry.scripts]\nmytrain = "p.cli:main"\n'}
    assert values(of(poetry))["project.command"] == found["project.command"]


@pytest.mark.parametrize("pyproject", ["not toml", "project = 3\n", '[project.scripts]\nmytrain = "p.cli:"\n'])
def test_a_module_that_only_defines_is_named_if_no_console_script_starts_it(pyproject):
    files = PACKAGE | {"pyproject.toml": pyproject}
    with pytest.raises(ConfigError, match=r"gangline init --script src/p/cli\.py"):
        of(files)
    assert any("cli.py only defines functions" in note for note in of(files, script="src/p/cli.py").notes)


def test_a_module_that_only_defines_is_not_a_script():
    adder = "from mingpt.trainer import Trainer\n" + SCRIPTS["torch"] + MAIN
    guess = of({"mingpt/trainer.py": SCRIPTS["torch"], "projects/adder/adder.py": adder})
    assert (guess.script.path, guess.others) == ("projects/adder/adder.py", ())


def test_arguments_that_the_script_demands_are_given_short_values():
    demands = DDP.replace('"--epochs", type=int, default=3', '"total_epochs", type=int').replace(
        '"--seed", type=int, default=0', '"save_every", type=int'
    )
    assert values(of({"train.py": demands + MAIN}))["project.command"] == ["python", "train.py", "2", "1"]


def test_a_demand_that_no_one_can_guess_is_a_question():
    guess = of({"train.py": DDP.replace('"--seed", type=int, default=0', '"--corpus", required=True') + MAIN})
    assert guess.keys[1].value[2:] == ["--corpus", "?"]
    assert guess.keys[1].why.startswith("? a value for --corpus")


def test_the_likeliest_of_several_is_taken_the_others_are_named_and_one_may_be_chosen():
    files = {
        "evaluate.py": "import torch\ndef main(): model.fit()\n" + MAIN,
        "src/deep/pretrain.py": DDP + MAIN,
        "tests/train.py": DDP + MAIN,
        "setup.py": "from setuptools import setup\nsetup()\n",
        "train.py": DDP + MAIN,
        "broken.py": "print 1\n",
    }
    guess = of(files)
    assert guess.script.path == "train.py"
    assert [each.path for each in guess.others] == ["src/deep/pretrain.py", "evaluate.py"]
    assert of(files, script="evaluate.py").script.path == "evaluate.py"
    with pytest.raises(UsageError, match=r"found no 'gone\.py'"):
        of(files, script="gone.py")
    with pytest.raises(ConfigError, match="syntax error"):
        of(files, script="broken.py")


def test_a_script_inside_a_package_starts_as_a_module():
    guess = of({"mine/train.py": "from .model import Net\n" + DDP + MAIN})
    assert values(guess)["project.command"][:3] == ["python", "-m", "mine.train"]


def test_a_lock_with_hashes_is_taken_and_one_without_is_not():
    pinned = "numpy==2.0.0 --hash=sha256:" + "a" * 64 + "\n"
    assert values(of({"train.py": DDP + MAIN, "requirements.txt": pinned}))["env.lock"] == "requirements.txt"
    assert "env.lock" not in values(of({"train.py": DDP + MAIN, "requirements.txt": "numpy\n"}))
    assert "env.lock" not in values(of({"train.py": DDP + MAIN, "requirements.txt": pinned + "-e .\n"}))


def test_a_backend_that_this_machine_lacks_is_reported():
    nccl = DDP.replace('"nccl" if torch.cuda.is_available() else "gloo"', 'backend="nccl"') + MAIN
    assert any("gloo" in note for note in of({"train.py": nccl}).notes)
    assert not any("gloo" in note for note in of({"train.py": nccl}, has_gpu=True).notes)


@pytest.mark.parametrize(
    ("says", "is_reported"),
    [
        ("    how = 'nccl'\n    dist.init_process_group(how)\n", True),
        ("    backend = 'nccl'\n    dist.init_process_group(backend=backend)\n", True),
        ("    parser.add_argument('--backend', default='nccl')\n    dist.init_process_group(args.backend)\n", True),
        ("    how = 'nccl' if gpu else 'gloo'\n    dist.init_process_group(how)\n", False),
        ("    how = 'nccl'\n    how = 'gloo'\n    dist.init_process_group(how)\n", False),
    ],
)
def test_a_backend_in_a_variable_is_followed_while_it_has_one_value(says, is_reported):
    script = "import torch.distributed as dist\ndef main():\n" + says + "    loss.backward()\n" + MAIN
    assert any("gloo" in note for note in of({"train.py": script}).notes) == is_reported


def test_nothing_that_trains_is_refused_with_what_works():
    with pytest.raises(ConfigError, match=r"none among 1 Python file; jupyter nbconvert --to script a\.ipynb"):
        of({"hello.py": "print('hello')\n", "a.ipynb": "{}"})
    with pytest.raises(
        ConfigError, match=r"none among 1 Python file; gangline init --script hello\.py chooses any tracked"
    ):
        of({"hello.py": "print('hello')\n"})
    with pytest.raises(ConfigError, match=r"none among 0 Python files; gangline init --script train\.py"):
        of({})
    assert of({"hello.py": "print('hello')\n"}, script="hello.py").script.path == "hello.py"


def test_names_of_folders_and_paths_cannot_break_the_text():
    guess = guess_line({'a "b"\n.py': (DDP + MAIN).encode()}, folder='12"\n[x]')
    assert tomllib.loads(line_text(guess))["project"]["command"][1] == 'a "b"\n.py'


def test_what_it_writes_and_where_its_package_lies_are_keys():
    more = "import json, mine\nimport numpy as np\n"
    writes = (
        "    json.dump({}, open('metrics.json', 'w'))\n    torch.save(1, f'out/{epoch}.pt')\n"
        "    torch.save(1, 'last.pt')\n    np.save('/tmp/x.npy', 1)\n    model.save_pretrained(output_dir='out')\n"
    )
    guess = of({"train.py": more + DDP + writes + MAIN, "src/mine/__init__.py": ""})
    found = values(guess)
    assert found["project.path"] == ["src"]
    assert found["project.metrics"] == "metrics.json"
    assert found["project.outputs"] == ["last.pt", "out/**", "out/*.pt"]
    assert not any("no metric" in note for note in guess.notes)


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("os.path.join(out_dir, 'ckpt.pt')", "runs/a/ckpt.pt"),
        ("Path(out_dir) / 'ckpt.pt'", "runs/a/ckpt.pt"),
        ("f'{out_dir}/ckpt.pt'", "runs/a/ckpt.pt"),
        ("str(out_dir + '/ckpt.pt')", "runs/a/ckpt.pt"),
        ("args.save_to + '/ckpt.pt'", "saved/ckpt.pt"),
        ("os.path.join(unknown(), 'ckpt.pt')", "**/ckpt.pt"),
        ("os.path.join(ambiguous, 'ckpt.pt')", "**/ckpt.pt"),
        ("f'ckpt-{step}.pt'", "ckpt-*.pt"),
        ("'./ckpt.pt'", "ckpt.pt"),
        ("self.snapshot_path", "snapshot.pt"),
        ("target", "last.pth.tar"),
        ("runs_of / name", "runs/a/b/ckpt.pt"),
    ],
)
def test_a_path_is_put_together_as_far_as_the_script_says_it(given, path):
    writes = (
        "    parser.add_argument('--save-to', default='saved')\n    out_dir = 'runs/a'\n"
        f"    ambiguous = 'a'\n    ambiguous = 'b'\n    torch.save(1, {given})\n"
        "    runs_of = Path(out_dir) / 'b'\n    name = 'ckpt.pt'\n"
        "def work(snapshot_path: str = 'snapshot.pt', *, other=None, target='last.pth.tar'):\n"
        "    Trainer(model, snapshot_path=snapshot_path)\n"
        "class Trainer:\n    def __init__(self, model, snapshot_path):\n        self.snapshot_path = snapshot_path\n"
    )
    assert values(of({"train.py": DDP + writes + MAIN}))["project.outputs"] == [path]


def test_a_path_of_a_thousand_parts_is_not_a_path():
    writes = f"    torch.save(1, {'+'.join(['x'] * 2000)} + '.pt')\n"
    assert "project.outputs" not in values(of({"train.py": DDP + writes + MAIN}))


def test_a_default_branch_of_another_name_publishes():
    assert values(of({"train.py": DDP + MAIN}, branch="trunk"))["publish.branches"] == ["trunk"]
    assert "publish.branches" not in values(of({"train.py": DDP + MAIN}, branch="main"))


READS = """\
corpus_dir = os.path.join("data", "tiny")
rows = np.memmap(os.path.join(corpus_dir, "train.bin"), dtype="uint16")
torch.load("out/last.pt")
torch.save(1, "out/last.pt")
open("settings.py").read()
open("log.txt", "w")
open("/data/elsewhere.bin")
open(unknown)
parser.add_argument("--data", default="./more/texts")
"""


def test_data_that_git_ignores_are_named_and_what_the_script_writes_itself_is_not():
    guess = of({"train.py": "import torch\n" + READS + SCRIPTS["torch"] + MAIN})
    assert guess.script.reads == ("data/tiny", "data/tiny/train.bin", "more/texts", "settings.py")
    assert not any("git ignores" in note for note in guess.notes)
    ignored = {"data/tiny/train.bin", "more/texts"}
    guess = of({"train.py": "import torch\n" + READS + SCRIPTS["torch"] + MAIN}, leaves_out=ignored.__contains__)
    assert "git ignores data/tiny/train.bin, more/texts, which train.py opens: no run has such files" in guess.notes[-1]
    whole = of({"train.py": "import torch\n" + READS + SCRIPTS["torch"] + MAIN}, leaves_out=lambda _path: True)
    assert "git ignores data/tiny, more/texts and 1 more" in whole.notes[-1], "a file of a folder that is named is not"


@pytest.mark.parametrize("saves", ["--save-model", "--save", None])
def test_an_option_without_which_nothing_is_saved_is_given(saves):
    flag = f"    parser.add_argument('{saves}', action='store_true')\n" if saves else ""
    guess = of({"train.py": DDP + flag + "    torch.save(1, 'net.pt')\n" + MAIN})
    assert values(guess)["project.command"] == ["python", "train.py", *([saves] if saves else []), "--seed", "{seed}"]
    nothing = of({"train.py": DDP + flag + MAIN})
    assert saves not in values(nothing)["project.command"]


ENDLESS = """\
import argparse, torch
parser = argparse.ArgumentParser()
parser.add_argument("{name}", type=int, default={default}, help="-1: for ever")
parser.add_argument("--seed", type=int, default=1)
args = parser.parse_args()
while args.steps < 0 or step < args.steps:
    loss.backward()
"""


@pytest.mark.parametrize("name", ["--max-steps", "--steps", "--num-iterations", "--max_train_steps"])
@pytest.mark.parametrize("default", ["-1", "0", "None"])
def test_a_default_that_may_mean_no_end_is_no_number_of_steps_and_the_command_gives_one(name, default):
    guess = of({"train.py": ENDLESS.format(name=name, default=default)})
    assert values(guess)["project.command"] == ["python", "train.py", name, "100", "--seed", "{seed}"]
    steps = next(key for key in guess.keys if key.name == "steps")
    assert (steps.value, steps.why) == (100, f"{name} of the command; its default {default} may mean no end")


def test_an_option_of_steps_is_left_alone_where_epochs_are_counted_or_its_default_is_not_known():
    counts = ENDLESS.format(name="--max-steps", default="-1") + "parser.add_argument('--epochs', default=3)\n"
    guess = of({"train.py": counts})
    assert values(guess)["project.command"] == ["python", "train.py", "--seed", "{seed}"]
    why = next(key.why for key in guess.keys if key.name == "steps")
    assert why == "? it counts 3 epochs; for progress alone, the program decides when it ends"
    for default in ("STEPS", "80 * 1000"):
        found = values(of({"train.py": ENDLESS.format(name="--max-steps", default=default)}))
        assert "--max-steps" not in found["project.command"]
        assert found["train.steps"] == (80_000 if "80" in default else 100)


@pytest.mark.parametrize(
    ("options", "value", "why"),
    [
        ("'--device-batch-size', default=32", 32, "--device-batch-size of train.py"),
        ("'--global-batch-size', default=48", 48, "--global-batch-size of train.py"),
        ("'--total-batch-size', default=-1", 2, "? samples of a step: --total-batch-size of train.py is one"),
        ("'--device-batch-size', default=32)\nparser.add_argument('--total-batch-size', default=-1", 32,
         "? --device-batch-size of train.py; --total-batch-size may make more passes of it"),
    ],
)  # fmt: skip
def test_batches_of_a_device_and_of_all_ranks_are_distinguished(options, value, why):
    guess = of({"train.py": f"import torch\nparser.add_argument({options})\nloss.backward()\n"})
    assert next((key.value, key.why) for key in guess.keys if key.name == "global_batch") == (value, why)


def test_line_ends_of_windows_change_nothing():
    files = {
        "train.py": ENDLESS.format(name="--max-steps", default="-1") + "torch.save(1, 'model.pt')\n",
        "requirements.txt": "numpy==2.0.0 \\\n    --hash=sha256:" + "a" * 64 + "\n    # via x\n",
        "pyproject.toml": "[project.scripts]\nmytrain = 'p.cli:main'\n",
        "p/cli.py": "def main(): pass\n",
    }
    plain, windows = of(files), of({path: text.replace("\n", "\r\n") for path, text in files.items()})
    assert (plain.keys, plain.notes) == (windows.keys, windows.notes)
    assert values(plain)["env.lock"] == "requirements.txt"


def test_fields_are_options_only_of_the_classes_that_a_parser_is_given():
    text = """\
from dataclasses import dataclass
from transformers import HfArgumentParser, Trainer
@dataclass
class Collator:
    tokenizer: object
@dataclass
class Data:
    seed: int = 1
def main():
    HfArgumentParser((Data, TrainingArguments)).parse_args_into_dataclasses()
    Trainer(model).train()
"""
    assert values(of({"train.py": text + MAIN}))["project.command"] == ["python", "train.py", "--seed", "{seed}"]
    rest = "import argparse, torch\np.add_argument('opts', nargs=argparse.REMAINDER)\nloss.backward()\n"
    assert values(of({"train.py": rest}))["project.command"] == ["python", "train.py"]


def test_a_script_that_fits_in_parts_trains():
    source = (
        b"import sklearn\nmodel = sklearn.linear_model.SGDClassifier()\nmodel.partial_fit([[0.0]], [0], classes=[0])\n"
    )
    assert guess_line({"train.py": source}, folder="mine").script.path == "train.py"
