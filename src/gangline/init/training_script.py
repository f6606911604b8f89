"""Training script: what `gangline init` knows of a Python file: its kind, options, numbers, files."""

from dataclasses import dataclass
from typing import Any

SCRIPT_KINDS = {
    "gangline": ("its own calls of gangline.train", True),
    "accelerate": ("Accelerator(", True),
    "transformers": ("a Trainer of transformers", True),
    "lightning": ("a Trainer of lightning", False),
    "torchrun": ("torch.distributed, as torchrun starts it", True),
    "spawns": ("processes that it starts itself", False),
    "jax": ("jax", False),
    "xgboost": ("xgboost", False),
    "sklearn": ("sklearn", False),
    "keras": ("keras", False),
    "torch": ("torch, one process", False),
    "plain": ("no known framework", False),
}
"""Kind -> the sign of it in the source, and whether several ranks share the work."""

_STEPS = ("max_steps", "steps", "num_steps", "total_steps", "train_steps", "max_iters", "iterations", "num_iterations")
_EPOCHS = ("epochs", "num_epochs", "total_epochs", "max_epochs", "num_train_epochs", "n_epochs", "n_estimators",
           "niter")  # fmt: skip
_BATCH = ("batch_size", "train_batch_size", "per_device_train_batch_size", "global_batch", "bs", "batchsize")
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
    """As written: `--seed`, or `epochs` for a positional argument."""
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
    kind: str
    line: int
    """Line that shows its kind; 0 if none does."""
    has_main: bool
    only_defines: bool
    """Its top level has only definitions, so starting it does nothing."""
    trains: bool
    relative: bool
    """It has relative imports, so it is started as a module."""
    imports: frozenset[str]
    options: tuple[ScriptOption, ...]
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

    def number(self, what: str) -> tuple[int, str] | None:
        """Value of `steps`, `epochs`, `batch` or `accumulates`, with the name that sets it; None if not found.

        With `total_timesteps`, `num_steps` and the like are those of a rollout.
        """
        if what == "steps" and "total_timesteps" in {*self.numbers, *(each.key for each in self.options)}:
            return None
        names = {"steps": _STEPS, "epochs": _EPOCHS, "batch": _BATCH, "accumulates": _ACCUMULATES}[what]
        for option in self.options:
            if option.key in names and type(option.default) is int and option.default > 0:
                return option.default, option.name
        return next(((value, name) for name in names if (value := self.numbers.get(name)) and value > 0), None)

    @property
    def accumulation(self) -> str | None:
        """Option or name of its gradient accumulation; None if it has none."""
        options = (each.name for each in self.options if each.key in _ACCUMULATES)
        return next(options, None) or next((name for name in _ACCUMULATES if name in self.numbers), None)

    @property
    def seed_option(self) -> str | None:
        """Option that takes the seed, such as `--seed`; None if it has none."""
        return next((each.name for each in self.options if each.key in _SEED and each.name.startswith("--")), None)

    @property
    def save_flag(self) -> str | None:
        """Flag that turns saving on; None if it has none."""
        return next((each.name for each in self.options if each.is_flag and each.key in _SAVES), None)

    @property
    def required(self) -> tuple[ScriptOption, ...]:
        """Options without which the script does not start."""
        return tuple(each for each in self.options if each.required)
