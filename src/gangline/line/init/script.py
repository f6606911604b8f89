"""What one Python file says about itself, read from its syntax tree: nothing is imported, nothing runs."""

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

KINDS = {
    "gangline": ("its own calls of gangline.train", True),
    "accelerate": ("Accelerator(", True),
    "transformers": ("a Trainer of transformers", True),
    "lightning": ("a Trainer of lightning", False),
    "torchrun": ("torch.distributed, as torchrun starts it", True),
    "spawns": ("processes that it starts itself", False),
    "jax": ("jax", False),
    "xgboost": ("xgboost", False),
    "sklearn": ("sklearn", False),
    "torch": ("torch, one process", False),
    "plain": ("no framework that is known here", False),
}
"""Kind to what is seen of it, and whether each of several ranks does a share of the work."""

_PLAIN = {"xgboost": "xgboost", "lightgbm": "sklearn", "sklearn": "sklearn", "jax": "jax", "flax": "jax"}
_TRAINS = frozenset({"backward", "fit", "train", "step", "grad", "value_and_grad"})
_DEFINES = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign)
_STEPS = ("max_steps", "steps", "num_steps", "total_steps", "train_steps", "max_iters", "iterations", "num_iterations")
_EPOCHS = ("epochs", "num_epochs", "total_epochs", "max_epochs", "num_train_epochs", "n_epochs", "n_estimators")
_BATCH = ("batch_size", "train_batch_size", "per_device_train_batch_size", "global_batch", "bs")
_SEED = ("seed", "random_seed", "random_state")
_WRITERS = frozenset({"save", "savez", "save_pretrained", "save_model", "save_checkpoint", "dump", "to_csv", "savefig"})
_LONGEST = 200
"""Of a path, in characters."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Option:
    """One argument of the script's command line."""

    name: str
    """As it is written: `--seed`, or `epochs` where it has no dashes."""
    default: Any
    required: bool

    @property
    def word(self) -> str:
        return self.name.lstrip("-").replace("-", "_").lower()


@dataclass(frozen=True, kw_only=True, slots=True)
class Script:
    """A Python file that may be a training."""

    path: str
    kind: str
    line: int
    """Where its kind shows; 0: nowhere."""
    has_main: bool
    only_defines: bool
    """Started alone it would do nothing."""
    trains: bool
    relative: bool
    """It imports from its own package by dots: it is started as a module."""
    imports: frozenset[str]
    options: tuple[Option, ...]
    numbers: dict[str, int]
    """Names that are given whole numbers, as `max_steps = 100`."""
    texts: tuple[str, ...]
    """What it hands to calls that write."""
    needs_nccl: bool

    def number(self, what: str) -> tuple[int, str] | None:
        """Its `steps`, `epochs` or `batch`, and where that stands; None: not said."""
        names = {"steps": _STEPS, "epochs": _EPOCHS, "batch": _BATCH}[what]
        for option in self.options:
            if option.word in names and type(option.default) is int and option.default > 0:
                return option.default, option.name
        return next(((self.numbers[name], name) for name in names if self.numbers.get(name, 0) > 0), None)

    @property
    def seed_option(self) -> str | None:
        return next((each.name for each in self.options if each.word in _SEED and each.name.startswith("--")), None)

    @property
    def required(self) -> tuple[Option, ...]:
        return tuple(each for each in self.options if each.required)


def read_script(path: str, data: bytes) -> Script | None:
    """What the file at `path` says; None: it is no Python of this version."""
    try:
        tree = ast.parse(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    nodes = list(ast.walk(tree))
    imports = frozenset(_imported(nodes))
    kind, line = _kind(nodes, imports)
    options = tuple(_options(nodes))
    return Script(
        path=path, kind=kind, line=line, imports=imports,
        has_main=any(isinstance(each, ast.If) and _is_main(each.test) for each in tree.body),
        only_defines=all(isinstance(each, _DEFINES) or _is_text(each) for each in tree.body),
        trains=any(isinstance(each, ast.Call) and _called(each) in _TRAINS for each in nodes),
        relative=any(isinstance(each, ast.ImportFrom) and each.level > 0 for each in nodes),
        options=options, numbers=_numbers(nodes), texts=tuple(_written(nodes, _words(nodes, options))),
        needs_nccl=_needs_nccl(nodes),
    )  # fmt: skip


def _kind(nodes: list[ast.AST], imports: frozenset[str]) -> tuple[str, int]:
    calls = {_called(each): each.lineno for each in nodes if isinstance(each, ast.Call)}
    trainer = calls.get("Trainer") or next((line for name, line in calls.items() if name.endswith("Trainer")), None)
    shown = (
        ("gangline", "gangline" in imports, calls.get("Session") or calls.get("Program") or 0),
        ("accelerate", "accelerate" in imports and "Accelerator" in calls, calls.get("Accelerator", 0)),
        ("transformers", bool(imports & {"transformers", "trl"} and trainer), trainer or 0),
        ("lightning", bool(imports & {"lightning", "pytorch_lightning"} and trainer), trainer or 0),
        ("spawns", "spawn" in calls and "torch" in imports, calls.get("spawn", 0)),
        ("torchrun", "init_process_group" in calls, calls.get("init_process_group", 0)),
    )
    for kind, is_it, line in shown:
        if is_it:
            return kind, line
    known = next((kind for name, kind in _PLAIN.items() if name in imports), None)
    return known or ("torch" if "torch" in imports else "plain"), 0


def _imported(nodes: list[ast.AST]) -> Iterator[str]:
    for each in nodes:
        if isinstance(each, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in each.names)
        elif isinstance(each, ast.ImportFrom) and each.module and not each.level:
            yield each.module.partition(".")[0]


def _called(call: ast.Call) -> str:
    """Last word of what is called."""
    return str(getattr(call.func, "attr", None) or getattr(call.func, "id", ""))


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _is_main(test: ast.expr) -> bool:
    names = {each.id for each in ast.walk(test) if isinstance(each, ast.Name)}
    return "__name__" in names


def _options(nodes: list[ast.AST]) -> Iterator[Option]:
    """Arguments of argparse, click and their like."""
    for each in nodes:
        if not isinstance(each, ast.Call) or _called(each) not in ("add_argument", "option", "argument"):
            continue
        names = [name for arg in each.args if isinstance(name := _constant(arg), str)]
        if not names:
            continue
        name = max(names, key=len)
        told = {word.arg: _constant(word.value) for word in each.keywords}
        optional = name.startswith("-") or told.get("nargs") in ("?", "*")
        yield Option(name=name, default=told.get("default"), required=told.get("required") is True or not optional)


def _constant(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def _numbers(nodes: list[ast.AST]) -> dict[str, int]:
    """`max_steps = 100` and `TrainingArguments(max_steps=100)`; of several the first counts."""
    found: dict[str, int] = {}
    for name, value in _assigned(nodes):
        if type(value) is int:
            found.setdefault(name.lower(), value)
    return found


def _words(nodes: list[ast.AST], options: Iterable[Option]) -> dict[str, str]:
    """`out_dir = "out"` and defaults of options: names that stand for one text wherever they are used."""
    given = [*_assigned(nodes), *((each.word, each.default) for each in options)]
    texts = {name: {value for other, value in given if other == name} for name, _ in given}
    return {name: text for name, values in texts.items() if len(values) == 1 and isinstance(text := values.pop(), str)}


def _assigned(nodes: list[ast.AST]) -> Iterator[tuple[str, Any]]:
    """Names, of variables and of keywords in calls, with what is written out for them; None: no number and no text."""
    for each in nodes:
        pairs: list[tuple[str, ast.expr]] = []
        if isinstance(each, ast.Assign):
            pairs = [(target.id, each.value) for target in each.targets if isinstance(target, ast.Name)]
        elif isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and each.value is not None:
            pairs = [(each.target.id, each.value)]
        elif isinstance(each, ast.Call):
            pairs = [(word.arg, word.value) for word in each.keywords if word.arg]
        for name, node in pairs:
            value = _constant(node)
            yield name, value if isinstance(value, int | str) else None


def _written(nodes: list[ast.AST], words: Mapping[str, str]) -> Iterator[str]:
    """Names of files and folders that it hands to what writes."""
    for each in nodes:
        if not isinstance(each, ast.Call):
            continue
        opens = _called(each) == "open" and any(_constant(arg) in ("w", "wb", "a") for arg in each.args[1:])
        if _called(each) in _WRITERS or opens:
            texts = [_path_text(arg, words) for arg in each.args]
            yield from (text for text in texts if PurePosixPath(text).suffix and len(text) < _LONGEST)
        for word in each.keywords:
            if word.arg in ("output_dir", "save_dir", "default_root_dir") and isinstance(_constant(word.value), str):
                yield f"{_constant(word.value)}/"


def _path_text(node: ast.expr, words: Mapping[str, str]) -> str:
    """A path as far as it is written out, with `*` for what may be anything, `**` for a folder that may."""
    try:
        text = _text(node, words)
    except RecursionError:  # a sum of a thousand texts
        return "*"
    folder, slash, name = text.rpartition("/")
    return f"**/{name}" if slash and "*" in folder else str(PurePosixPath(text))


def _text(node: ast.expr, words: Mapping[str, str]) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return words.get(name, "*")
    between, parts = _parts(node)
    return between.join(_text(part, words) for part in parts) or "*"


def _parts(node: ast.expr) -> tuple[str, list[ast.expr]]:
    """What a text is put together from, and what comes between; no parts: it may be anything."""
    match node:
        case ast.FormattedValue(value=inner):
            return "", [inner]
        case ast.JoinedStr(values=parts):
            return "", parts
        case ast.BinOp(op=ast.Div(), left=left, right=right):
            return "/", [left, right]
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            return "", [left, right]
        case ast.Call(args=parts) if _called(node) in ("join", "joinpath", "Path", "PurePath", "str"):
            return "/", parts
    return "", []


def _needs_nccl(nodes: list[ast.AST]) -> bool:
    """Its process group has no backend but NCCL."""
    backends = [
        _constant(value)
        for each in nodes
        if isinstance(each, ast.Call) and _called(each) == "init_process_group"
        for value in [*each.args[:1], *(word.value for word in each.keywords if word.arg == "backend")]
    ]
    return backends == ["nccl"]
