"""Training script: what `gangline init` knows of a Python file: its kind, options, numbers, files."""

from dataclasses import dataclass
from typing import Any

from gangline.init.python_module import PythonModule
from gangline.init.rank_search import RankSearch

SCRIPT_KINDS = {
    "gangline": ("its own calls of gangline.train", True),
    "accelerate": ("Accelerator(", True),
    "transformers": ("a Trainer of transformers", True),
    "lightning": ("a Trainer or Fabric of lightning", False),
    "torchrun": ("torch.distributed, as torchrun starts it", True),
    "jax.distributed": ("jax.distributed", True),
    "tf.distribute": ("tf.distribute, which reads TF_CONFIG", True),
    "spawns": ("processes that it starts itself", False),
    "jax": ("jax", False),
    "xgboost": ("xgboost", False),
    "sklearn": ("sklearn", False),
    "keras": ("keras", False),
    "torch": ("torch", False),
    "plain": ("no known framework", False),
}
"""Kind -> the sign of it in the source, and whether several ranks share the work."""

STARTS_ITS_OWN = frozenset({"lightning", "spawns"})
"""Kinds that start their processes themselves, so that one process of a gang is enough."""

_STEPS = ("max_steps", "steps", "num_steps", "total_steps", "train_steps", "max_iters", "iterations", "num_iterations",
          "max_iterations", "n_steps", "training_steps", "num_train_steps", "max_train_steps", "num_training_steps",
          "n_iters", "num_iters", "train_iters", "total_iters")  # fmt: skip
_EPOCHS = ("epochs", "num_epochs", "total_epochs", "max_epochs", "num_train_epochs", "n_epochs", "n_estimators",
           "niter")  # fmt: skip
_BATCH = ("batch_size", "train_batch_size", "per_device_train_batch_size", "bs", "batchsize",
          "device_batch_size", "micro_batch_size", "per_gpu_train_batch_size", "batch_size_per_gpu",
          "per_device_batch_size")  # fmt: skip
_GLOBAL_BATCH = ("global_batch", "global_batch_size", "effective_batch_size")
"""Names of the samples of a step of all ranks."""
_TOTAL_BATCH = ("total_batch_size", "total_batch")
"""Names of the batch of all ranks, in samples or in tokens."""
_SEED = ("seed", "random_seed", "random_state", "manual_seed", "manualseed")
_ACCUMULATES = ("gradient_accumulation_steps", "grad_accumulation_steps", "accumulation_steps", "grad_accum_steps",
                "accum_steps", "accumulate_steps", "gradient_accumulation", "grad_accum", "accum_iter",
                "accumulate_grad_batches")  # fmt: skip
_SAVES = ("save", "save_model", "save_checkpoint", "save_checkpoints")
"""Flags without which some scripts save nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScriptOption:
    """An argument of the script's command line."""

    name: str
    """Argument as it is written: `--seed`, or `epochs` for a positional argument."""
    default: Any
    required: bool
    is_flag: bool = False
    """It takes no value and is off by default."""

    @property
    def key(self) -> str:
        """The name as a variable would have it: `batch_size` of `--batch-size`."""
        return self.name.lstrip("-").replace("-", "_").lower()


@dataclass(frozen=True, kw_only=True, slots=True)
class Script:
    """A Python file that may train a model."""

    path: str
    module: PythonModule
    search: RankSearch | None = None
    """Its kind, and where it shows; None before the search."""
    relative: bool
    """It has relative imports, so it is started as a module."""
    options: tuple[ScriptOption, ...]
    """Its own, else those of the first module of the repository that it uses and that has some."""
    options_path: str
    """File that has them; its own if none has."""
    numbers: dict[str, int | None]
    """Name -> whole number, of assignments such as `max_steps = 100`; None if the value is not a literal."""
    shared: frozenset[str]
    """Names of numbers that it divides by the number of ranks."""
    texts: tuple[str, ...]
    """Paths that it writes, with `*` for unknown parts."""
    reads: tuple[str, ...]
    """Relative paths that it opens, or that are named as data, and that it does not write."""
    needs_nccl: bool
    takes_words: bool
    """It reads `sys.argv` itself."""
    reads_seed: bool
    """It names `GANGLINE_SEED`."""
    by_hydra: bool
    """`hydra.main` parses its words, and writes its configuration and log to `hydra.run.dir`."""

    @property
    def kind(self) -> str:
        """A kind of `SCRIPT_KINDS`; `plain` before the search."""
        return self.search.kind if self.search else "plain"

    @property
    def sign(self) -> str:
        """Place that shows its kind: `line 4`, or `nanochat/common.py line 9`; empty if none does."""
        if self.search is None or not self.search.line:
            return ""
        inside = "" if self.search.path == self.path else f"{self.search.path} "
        return f"{inside}line {self.search.line}"

    def file_of(self, name: str) -> str:
        """File that has an option or a number."""
        return self.options_path if name.startswith("-") else self.path

    @property
    def imports(self) -> frozenset[str]:
        """Top names of the modules that it imports, but for relative imports."""
        return frozenset(each.module.partition(".")[0] for each in self.module.imports if not each.level)

    @property
    def endless(self) -> ScriptOption | None:
        """Option of its steps whose default is no number of them: None, 0 or -1, which often mean no end."""
        options = [option for option in self.options if option.key in _STEPS and option.name.startswith("--")]
        return next(
            (
                option
                for option in options
                if option.default in (None, 0, -1) and not (option.required or option.is_flag)
            ),
            None,
        )

    @property
    def total_batch(self) -> str | None:
        """Option or name of a batch that may be counted in tokens; None if it has none."""
        options = (option.name for option in self.options if option.key in _TOTAL_BATCH)
        return next(options, None) or next((name for name in _TOTAL_BATCH if name in self.numbers), None)

    def number(self, what: str) -> tuple[int, str] | None:
        """Value of `steps`, `epochs`, `batch`, `global` or `accumulates`, and the name that sets it; None: not found.

        With `total_timesteps`, `num_steps` and the like are those of a rollout.
        """
        if what == "steps" and "total_timesteps" in {
            *self.numbers,
            *(script_option.key for script_option in self.options),
        }:
            return None
        names = {
            "steps": _STEPS,
            "epochs": _EPOCHS,
            "batch": _BATCH,
            "global": _GLOBAL_BATCH,
            "accumulates": _ACCUMULATES,
        }[what]
        for option in self.options:
            if option.key in names and type(option.default) is int and option.default > 0:
                return option.default, option.name
        return next(((value, name) for name in names if (value := self.numbers.get(name)) and value > 0), None)

    @property
    def accumulation(self) -> str | None:
        """Option or name of its gradient accumulation; None if it has none."""
        options = (option.name for option in self.options if option.key in _ACCUMULATES)
        return next(options, None) or next((name for name in _ACCUMULATES if name in self.numbers), None)

    @property
    def seed(self) -> ScriptOption | None:
        """Option that takes the seed, such as `--seed`; None if it has none."""
        return next((option for option in self.options if option.key in _SEED and option.name.startswith("--")), None)

    @property
    def seed_option(self) -> str | None:
        """Name of `seed`."""
        return self.seed.name if self.seed else None

    @property
    def save_flag(self) -> str | None:
        """Flag that turns saving on; None if it has none."""
        return next((option.name for option in self.options if option.is_flag and option.key in _SAVES), None)

    @property
    def required(self) -> tuple[ScriptOption, ...]:
        """Options without which the script does not start."""
        return tuple(option for option in self.options if option.required)
