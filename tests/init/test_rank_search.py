"""Whether a script divides work among ranks: by its own code, and by that of the modules which it uses."""

import pytest

from gangline.init.line_guess import guess_line
from gangline.init.used_modules import MOST_MODULES

MAIN = '\nif __name__ == "__main__":\n    main()\n'
TRAINS = "import torch\ndef main():\n    loss.backward()\n"
RANKS = 'import torch.distributed as d\ndef start():\n    d.init_process_group("gloo")\n'


def of(files, **more):
    return guess_line({path: text.encode() for path, text in files.items()}, folder="demo", **more)


def distributed(guess):
    """Value and reason of `project.distributed`; None where the line leaves it out."""
    return next(((key.value, key.why) for key in guess.keys if key.name == "distributed"), None)


def test_ranks_that_an_imported_module_starts_are_found():
    train = "import torch\nfrom ranks import start\nstart()\nw = torch.ones(1)\n(w * 2).sum().backward()\n"
    guess = of({"ranks.py": RANKS, "train.py": train})
    assert (guess.script.path, guess.script.kind, guess.script.sign) == ("train.py", "torchrun", "ranks.py line 3")
    assert distributed(guess) is None


USES = {
    "a module by its name": ("import lib.ranks\nlib.ranks.start()\n", "lib/ranks.py"),
    "a module under another name": ("import lib.ranks as r\nr.start()\n", "lib/ranks.py"),
    "a name under another name": ("from lib.ranks import start as begin\nbegin()\n", "lib/ranks.py"),
    "what a package passes on": ("from lib import start\nstart()\n", "lib/ranks.py"),
    "a method": ("from lib.cls import Session\nSession().open()\n", "lib/cls.py"),
    "what a constructor does": ("from lib.made import Made\nMade()\n", "lib/made.py"),
    "a helper of a helper": ("from lib.deep import helper\nhelper()\n", "lib/ranks.py"),
    "all names": ("from lib.ranks import *\nstart()\n", "lib/ranks.py"),
    "a package of src": ("from pack.ranks import start\nstart()\n", "src/pack/ranks.py"),
}
LIBRARY = {
    "lib/__init__.py": "from .ranks import start\n",
    "lib/ranks.py": RANKS,
    "lib/cls.py": f"{RANKS}class Session:\n    def open(self):\n        d.init_process_group()\n",
    "lib/made.py": f"{RANKS}class Made:\n    def __init__(self):\n        d.init_process_group()\n",
    "lib/deep.py": "from .ranks import start\ndef helper():\n    start()\n",
    "src/pack/__init__.py": "",
    "src/pack/ranks.py": RANKS,
}


@pytest.mark.parametrize("use", USES)
def test_imports_of_every_form_are_followed(use):
    text, place = USES[use]
    guess = of(LIBRARY | {"train.py": f"import torch\n{text}def main():\n    loss.backward()\n{MAIN}"})
    assert (guess.script.kind, guess.script.search.path) == ("torchrun", place)
    assert distributed(guess) is None


@pytest.mark.parametrize(
    "text",
    [
        "from lib.ranks import Other\nOther()\n",
        "import lib.unused\n",
        "from lib.main_only import x\nprint(x)\n",
        "import gone.away\nfrom . import nothing\n",
    ],
)
def test_code_that_is_not_used_does_not_count(text):
    more = {
        "lib/__init__.py": "", "lib/ranks.py": f"{RANKS}class Other:\n    pass\n", "lib/unused.py": RANKS,
        "lib/main_only.py": f'{RANKS}x = 1\nif __name__ == "__main__":\n    start()\n',
    }  # fmt: skip
    guess = of(more | {"train.py": f"import torch\n{text}def main():\n    loss.backward()\n{MAIN}"})
    assert guess.script.kind == "torch"
    value, why = distributed(guess)
    assert value is False
    assert why.startswith("no code for ranks in train.py")


def test_the_sentence_says_what_was_looked_at():
    helpers = {f"part{number}.py": "def part(): pass\n" for number in range(2)}
    uses = "from part0 import part\nfrom part1 import part\n"
    assert distributed(of({"train.py": TRAINS + MAIN})) == (False, "no code for ranks in train.py")
    guess = of(helpers | {"train.py": f"{uses}{TRAINS}{MAIN}"})
    assert distributed(guess) == (
        False,
        "no code for ranks in train.py and the 2 modules of the repository that it uses",
    )
    assert all(key.is_known for key in guess.keys if key.name == "distributed")


@pytest.mark.parametrize(
    ("text", "not_seen"),
    [
        ("import mmengine\n", "what mmengine starts"),
        ("import importlib\nimportlib.import_module(name)\n", "what it loads by import_module"),
        ("from hydra.utils import instantiate\ninstantiate(cfg.trainer)\n", "what it loads by instantiate"),
        ("import ray\nimport composer\n", "what composer starts and what ray starts"),
    ],
)
def test_what_may_start_ranks_out_of_sight_makes_the_answer_a_question(text, not_seen):
    guess = of({"train.py": text + TRAINS + MAIN})
    assert distributed(guess) == (False, f"? no code for ranks in train.py; not seen: {not_seen}")


def test_modules_without_an_end_are_a_question():
    chain = {f"m{n}.py": f"from m{n + 1} import go{n + 1}\ndef go{n}():\n    go{n + 1}()\n" for n in range(200)}
    guess = of(chain | {"train.py": f"from m0 import go0\ngo0()\n{TRAINS}{MAIN}"})
    why = distributed(guess)[1]
    assert why.startswith(f"? no code for ranks in train.py and the {MOST_MODULES - 1} modules of the repository")
    assert why.endswith("not seen: more modules of the repository")


FRAMEWORKS = {
    "SFTTrainer": ("from trl import SFTTrainer\nSFTTrainer(model).train()\n", "transformers"),
    "SentenceTransformerTrainer": (
        "import sentence_transformers as s\ns.SentenceTransformerTrainer(m).train()\n", "transformers",
    ),
    "Fabric": ("import lightning as L\nfabric = L.Fabric()\nloss.backward()\n", "lightning"),
    "LightningCLI": ("from lightning.pytorch.cli import LightningCLI\nLightningCLI(Net)\n", "lightning"),
    "a Trainer of its own": (
        "from transformers import Trainer\nclass Mine(Trainer):\n    pass\nMine(m).train()\n", "transformers",
    ),
    "a Trainer of a module": ("from mine import Mine\nMine(m).train()\n", "transformers"),
    "no Trainer of transformers": (
        "import torch, transformers\nfrom other import Trainer\nTrainer(m).train()\n", "torch",
    ),
    "a helper of a library": (
        "import torch\nfrom timm.utils import init_distributed_device\ninit_distributed_device(a)\nx.backward()\n",
        "torchrun",
    ),
    "DDP that another starts": (
        "import torch\nfrom torch.nn.parallel import DistributedDataParallel as DDP\nDDP(net)\nx.step()\n", "torchrun",
    ),
    "deepspeed": ("import torch, deepspeed\ndeepspeed.initialize(model=m)\nx.backward()\n", "torchrun"),
    "jax.distributed": ("import jax\njax.distributed.initialize()\njax.grad(f)(x)\n", "jax.distributed"),
    "tf.distribute": (
        "import tensorflow as tf\ntf.distribute.MultiWorkerMirroredStrategy()\nm.fit(x)\n", "tf.distribute",
    ),
    "spawn of something else": ("import torch, numpy as np\nrng = np.random.SeedSequence().spawn(2)\nx.backward()\n",
                                "torch"),
    "torch that measures by sklearn": ("import torch, sklearn.metrics\nx.backward()\n", "torch"),
}  # fmt: skip


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_frameworks_are_known_by_what_is_called_and_where_it_is_from(name):
    text, kind = FRAMEWORKS[name]
    guess = of({"train.py": text, "mine.py": "import transformers as tf\nclass Mine(tf.Trainer):\n    pass\n"})
    assert guess.script.kind == kind
    assert (distributed(guess) is None) == (kind in ("transformers", "torchrun", "jax.distributed", "tf.distribute"))


def test_a_library_that_starts_processes_is_said_to():
    guess = of({"train.py": "import lightning as L\ndef main():\n    L.Trainer().fit(m)\n" + MAIN})
    assert distributed(guess) == (False, "lightning starts its processes itself, line 3")
    spawns = "import torch, torch.multiprocessing as mp\ndef main():\n    mp.spawn(work)\n    x.backward()\n"
    assert distributed(of({"train.py": spawns + MAIN})) == (False, "train.py starts its processes itself, line 3")


def test_options_of_a_module_that_parses_them_are_those_of_the_script():
    parser = "import argparse\ndef parse():\n    p = argparse.ArgumentParser()\n"
    parser += "    p.add_argument('--seed')\n    p.add_argument('--batch-size', type=int, default=24)\n"
    guess = of({"params.py": parser, "train.py": f"from params import parse\nparse()\n{TRAINS}{MAIN}"})
    found = {key.name: (key.value, key.why) for key in guess.keys}
    assert found["command"][0] == ["python", "train.py", "--seed", "{seed}"]
    assert found["global_batch"] == (24, "--batch-size of params.py")
    assert not [note for note in guess.notes if "--seed" in note]
