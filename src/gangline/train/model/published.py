"""A published model that answers: its verified folder, opened by the task or by the handler of the line.

Three roles use it: the smoke test of a candidate, scoring of a data set, and the server. Torch is imported when a
model is opened.
"""

import importlib
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangline.checkpoint.format.safetensors import TensorEntry, header_length, parse_header
from gangline.errors import ConfigError, IntegrityError, OutOfMemoryError, TrainingError
from gangline.train.model.golden import GOLDEN, NUMPY_NAMES, TOLERANCE, Golden, difference, read_golden
from gangline.train.task import Task, export_names_of, forward_names, load_task

if TYPE_CHECKING:
    from numpy import ndarray
    from torch import Tensor, nn

    Arrays = dict[str, ndarray]

PROGRAM_FORMAT = "gangline-program/1"
"""Format of a folder whose weights are files of a program, in formats of its own."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Dtype and shape of one input or output."""

    dtype: str
    """Name of numpy, as `float32`."""
    shape: tuple[int, ...]
    """-1: any size; the first dimension is that of the batch."""

    def fits(self, array: "ndarray") -> bool:
        """Whether `array` has this dtype and shape."""
        same_rank = len(array.shape) == len(self.shape)
        return (
            str(array.dtype) == self.dtype
            and same_rank
            and all(wanted in (-1, size) for wanted, size in zip(self.shape, array.shape, strict=True))
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedModel:
    """A model that answers batches; it is called from one thread at a time."""

    inputs: Mapping[str, TensorSpec]
    """Empty: not known, for the version has neither golden sample nor handler."""
    outputs: Mapping[str, TensorSpec]
    predict: "Callable[[Arrays], Arrays]"
    """Answers a batch: each array has one row for each sample."""
    golden: Golden | None = None
    device: str = "cpu"


def open_published(folder: Path, code: Path | None, handler: str | None = None) -> PublishedModel:
    """Open the model of a verified `folder`; `code` is the unpacked code layer of its commit.

    Args:
        folder: Of the version; nothing in it is executed.
        code: Goes on `sys.path`, with the folders that `config.json` names.
        handler: `module:Class`; None: that of `config.json`, or else the task.

    Raises:
        ConfigError: A program's version has no handler, or the class lacks what a handler needs.
        IntegrityError: The weights cannot be read, or do not fit the model.
        TrainingError: The code does not import, or the model cannot be built.
        OutOfMemoryError: The device has too little memory.
    """
    config = read_config(folder)
    infer = config.get("infer") or {}
    handler = handler or infer.get("handler")
    for each in () if code is None else reversed((".", *infer.get("path", ()))):
        sys.path.insert(0, str((code / each).resolve()))
    golden = read_golden(folder)
    if handler is None:
        require_handler(folder, config)
    try:
        model = _by_handler(folder, handler, golden) if handler else _by_task(folder, config, golden)
    except (ConfigError, IntegrityError):
        raise
    except MemoryError as error:
        raise OutOfMemoryError(f"the model of {folder.name} does not fit into memory") from error
    except Exception as error:  # code of a model raises anything
        if type(error).__name__ == "OutOfMemoryError":
            raise OutOfMemoryError(f"the model of {folder.name} does not fit: {error}") from error
        raise TrainingError(f"the model cannot be opened: {type(error).__name__}: {error}") from error
    return model


def read_config(folder: Path) -> dict[str, Any]:
    """`config.json` of a model folder; IntegrityError where it is none."""
    try:
        plain = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise IntegrityError(f"{folder.name}: config.json cannot be read: {error}") from error
    if not isinstance(plain, dict):
        raise IntegrityError(f"{folder.name}: wanted a table in config.json, found {type(plain).__name__}")
    return plain


def language_model_folder(folder: Path) -> Path | None:
    """Folder of a Hugging Face model among the files of a program; None: there is none."""
    paths = sorted(path.parent for path in folder.rglob("config.json") if path.parent != folder)
    return next((path for path in paths if any(path.glob("*.safetensors"))), None)


def require_handler(folder: Path, config: dict[str, Any]) -> None:
    """Raises ConfigError for a version that has neither task nor handler; the message says what to do with it."""
    is_task = config.get("format") != PROGRAM_FORMAT and config.get("task")
    if is_task or (config.get("infer") or {}).get("handler"):
        return
    if (model := language_model_folder(folder)) is not None:
        raise ConfigError(
            f"this version is a Hugging Face folder, which gangline does not open; gangline verify NAME --into FOLDER, "
            f"then: vllm serve FOLDER/{model.relative_to(folder).as_posix()} --load-format safetensors"
        )
    raise ConfigError(
        "this version has files of a program, and its line names no infer.handler: a class with load(folder),"
        " predict(batch), inputs and outputs; publish again with one"
    )


def check_golden(model: PublishedModel) -> str:
    """Answer the golden sample; a sentence on how close it is.

    Raises:
        IntegrityError: The answer is another one.
    """
    if model.golden is None:
        return "unknown: the version has no golden sample"
    found = difference(model.golden.outputs, model.predict(dict(model.golden.inputs)))
    if not found <= TOLERANCE:
        raise IntegrityError(
            f"the golden sample is answered otherwise than when the model was published: difference {found:.2g}"
            f" on {model.device}, wanted at most {TOLERANCE:g} of the largest number"
        )
    return f"the same within {found:.1g} on {model.device}"


def read_weights(file: Path) -> "dict[str, Tensor]":
    """Tensors of one safetensors file by name; the header is checked before anything is allocated."""
    import torch

    from gangline.checkpoint.host_tensors import DTYPES

    data = bytearray(file.read_bytes())
    entries = parse_header(bytes(data[: header_length(bytes(data[:8]), len(data))]), len(data))

    def tensor(entry: TensorEntry) -> "Tensor":
        if not entry.size_bytes:
            return torch.empty(entry.shape, dtype=DTYPES[entry.dtype])
        count = entry.size_bytes // DTYPES[entry.dtype].itemsize
        flat = torch.frombuffer(data, dtype=DTYPES[entry.dtype], count=count, offset=entry.start)
        return flat.reshape(entry.shape)

    return {name: tensor(entry) for name, entry in entries.items()}


def read_all_weights(folder: Path) -> "dict[str, Tensor]":
    """Tensors of all files of weights."""
    files = (path for path in sorted(folder.glob("*.safetensors")) if path.name != GOLDEN)
    return {name: weight for file in files for name, weight in read_weights(file).items()}


def fill(task: Task, model: "nn.Module", weights: "dict[str, Tensor]") -> None:
    """Give `model` its weights by their published names; IntegrityError where they do not fit."""
    own = {published: name for name, published in export_names_of(task).items()}
    try:
        model.load_state_dict(
            {own.get(name, name): weight for name, weight in weights.items()}, strict=True, assign=True
        )
    except RuntimeError as error:
        raise IntegrityError(f"the weights do not fit the model: {' '.join(str(error).split())[:400]}") from error


def as_arrays(outputs: Any) -> "Arrays":
    """Outputs of a model by name: a tensor is `output`, a sequence `output_0` and so on, a mapping has names."""
    import torch

    if isinstance(outputs, Mapping):
        named = dict(outputs)
    elif isinstance(outputs, list | tuple):
        named = {f"output_{number}": output for number, output in enumerate(outputs)}
    else:
        named = {"output": outputs}
    arrays = {}
    for name, each in named.items():
        if isinstance(each, torch.Tensor):
            tensor = each.detach().cpu()
            arrays[name] = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
    return arrays


def specs_of(arrays: "Mapping[str, ndarray]") -> dict[str, TensorSpec]:
    """Specs of arrays whose first dimension is the batch."""
    return {name: TensorSpec(str(array.dtype), (-1, *array.shape[1:])) for name, array in arrays.items()}


def _by_task(folder: Path, config: dict[str, Any], golden: Golden | None) -> PublishedModel:
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    task = load_task(config["task"])
    model = task.build_model(dict(config["model"]))
    fill(task, model, read_all_weights(folder))
    model.to(device).eval()
    taken = forward_names(model)

    def predict(batch: "Arrays") -> "Arrays":
        tensors = {name: torch.tensor(array, device=device) for name, array in batch.items()}
        with torch.inference_mode():
            return as_arrays(
                model(**{name: tensor for name, tensor in tensors.items() if taken is None or name in taken})
            )

    known = golden or Golden({}, {})
    return PublishedModel(
        inputs=specs_of(known.inputs), outputs=specs_of(known.outputs), predict=predict, golden=golden, device=device
    )


def _by_handler(folder: Path, name: str, golden: Golden | None) -> PublishedModel:
    module_name, _, class_name = name.partition(":")
    cls = getattr(importlib.import_module(module_name), class_name, None)
    missing = [each for each in ("load", "predict", "inputs", "outputs") if not hasattr(cls, each)]
    if cls is None or missing:
        raise ConfigError(
            f"infer.handler {name!r}: wanted a class with load, predict, inputs and outputs, {missing} missing"
        )
    handler = cls()
    handler.load(folder)
    return PublishedModel(
        inputs=_declared(name, "inputs", handler.inputs), outputs=_declared(name, "outputs", handler.outputs),
        predict=handler.predict, golden=golden,
    )  # fmt: skip


def _declared(handler: str, what: str, table: Any) -> dict[str, TensorSpec]:
    try:
        specs = {str(name): TensorSpec(str(dtype), tuple(map(int, shape))) for name, (dtype, shape) in table.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise ConfigError(
            f"infer.handler {handler!r}: wanted {what} as name to (dtype, shape), found {table!r:.200}"
        ) from error
    for name, spec in specs.items():
        if spec.dtype not in NUMPY_NAMES.values() or not spec.shape or spec.shape[0] != -1:
            raise ConfigError(
                f"infer.handler {handler!r}: {what} {name!r} is {spec.dtype} {list(spec.shape)}; wanted a dtype of"
                f" {', '.join(NUMPY_NAMES.values())} and -1, the batch, as first size"
            )
    return specs
