"""Reports of a program: numbers as floats, whatever converts to one, and on which files of weights they were measured.

No torch.
"""

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gangline.checkpoint.format.manifest import BLOCK_BYTES
from gangline.errors import UsageError
from gangline.spec.gang.status import WeightsEvaluation, WeightsFile
from gangline.spec.output_limits import MOST_EVALUATIONS, MOST_NAME, MOST_WEIGHTS_FILES

WeightsPaths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
"""A file of weights, a folder of them, or several."""


class Evaluations:
    """The newest metrics of each weights, and those of which no weights are named; of many weights the last."""

    def __init__(self) -> None:
        self._found: dict[tuple[tuple[str, WeightsFile], ...], WeightsEvaluation] = {}

    def add(self, step: int, metrics: Mapping[str, float], weights: Mapping[str, WeightsFile]) -> None:
        """Keep `metrics` after `step`, together with earlier ones of the same weights, and their step."""
        key = tuple(sorted(weights.items(), key=lambda each: each[0]))
        before = self._found.pop(key, None) or WeightsEvaluation(step=step, metrics={}, weights=dict(weights))
        self._found[key] = replace(before, metrics=before.metrics | dict(metrics))
        while len(self._found) > MOST_EVALUATIONS:
            self._found.pop(next(iter(self._found)))

    def all(self) -> tuple[WeightsEvaluation, ...]:
        """All evaluations, in the order of their newest metrics; none where no weights are named."""
        evaluations = tuple(self._found.values())
        return evaluations if any(evaluation.weights for evaluation in evaluations) else ()


def weights_files(paths: WeightsPaths, *, saved: Mapping[str, WeightsFile]) -> dict[str, WeightsFile]:
    """Digests of files on disk, those of folders with all that is in them, else of names in the newest save.

    Raises:
        UsageError: There is no such file, or there are too many.
    """
    named = [paths] if isinstance(paths, str | os.PathLike) else paths
    found: dict[str, WeightsFile] = {}
    for each in named if isinstance(named, Iterable) else ():
        name = os.fspath(each) if isinstance(each, str | os.PathLike) else ""
        path = Path(name)
        if name and path.is_dir():
            found |= {_name(file): _digests(file) for file in sorted(path.rglob("*")) if file.is_file()}
        elif name and path.is_file():
            found[_name(path)] = _digests(path)
        elif name in saved:
            found[name] = saved[name]
        else:
            raise UsageError(
                f"program.report: weights: wanted files of weights on disk or in the last save, found no {each!r};"
                " name a file that was written before"
            )
    if not 0 < len(found) <= MOST_WEIGHTS_FILES:
        raise UsageError(
            f"program.report: weights: wanted 1 to {MOST_WEIGHTS_FILES} files, found {len(found)}; name weights alone"
        )
    return found


def _name(path: Path) -> str:
    """Path from the working folder, as outputs are named."""
    return Path(os.path.relpath(path)).as_posix()[-MOST_NAME:]


def _digests(path: Path) -> WeightsFile:
    whole, blocks = hashlib.sha256(), hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            whole.update(block)
            blocks.update(hashlib.sha256(block).hexdigest().encode())
    return WeightsFile(sha256=whole.hexdigest(), blocks=blocks.hexdigest())


_OF_A_STEP = frozenset(
    {"event", "rank", "generation", "step", "mono", "time", "samples", "seconds", "phases", "seed", "job",
     "step_seconds"}
)  # fmt: skip
"""Fields of a step's own event and line, which are measured."""


def as_numbers(call: str, values: Mapping[str, object], *, of_a_step: bool = False) -> dict[str, float]:
    """Floats of `values`, by name; `call` is what the program wrote, such as `program.report`.

    Raises:
        UsageError: A value is not one number, or, of a step, its name is that of a field that is measured.
    """
    if of_a_step and (taken := sorted(_OF_A_STEP & values.keys())):
        raise UsageError(
            f"{call}: wanted numbers under names of your own, found {', '.join(taken)}, which a step has already;"
            f" name it otherwise: my_{taken[0]}=..."
        )
    return {name: as_number(f"{call}: {name}", value) for name, value in values.items()}


def as_number(argument: str, value: Any) -> float:
    """The float of a number, or of a tensor or array with one element, whether or not it has a gradient.

    Raises:
        UsageError: It is not one number; the message begins with `argument`.
    """
    cause: Exception | None = None
    if not isinstance(value, str | bytes):  # float() would read a text
        try:
            return float(value.item() if hasattr(value, "item") else value)  # float(tensor) warns of its gradient
        except (TypeError, ValueError, OverflowError, RuntimeError) as error:
            cause = error
    shape = getattr(value, "shape", None)
    size = f" of shape {tuple(shape)}" if isinstance(shape, tuple) and shape else ""
    works = "its mean, float(...) of a number and a tensor of one element work"
    raise UsageError(f"{argument}: wanted one number, found {type(value).__name__}{size}; {works}") from cause
