"""Analysis of a Python training script by its syntax tree: kind, options, batch, steps; nothing is imported or run."""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
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
_ACCUMULATES = ("gradient_accumulation_steps", "grad_accumulation_steps", "accumulation_steps", "grad_accum_steps",
                "accum_steps", "accumulate_steps", "gradient_accumulation", "grad_accum", "accum_iter",
                "accumulate_grad_batches")  # fmt: skip
_RANKS = re.compile(
    r"world_?size|num_(processes|gpus|devices|replicas|ranks)|n_?(proc|gpu)|device_count", re.IGNORECASE
)
"""Names of how many ranks there are."""
_WRITERS = frozenset({"save", "savez", "save_pretrained", "save_model", "save_checkpoint", "dump", "to_csv", "savefig"})
_READERS = frozenset({"open", "memmap", "load", "loadtxt", "genfromtxt", "fromfile", "read_csv", "read_parquet",
                      "read_json", "read_table", "read_text", "read_bytes", "load_from_disk", "ImageFolder",
                      "File"})  # fmt: skip
_DATA = re.compile(r"data|corpus|train_file", re.IGNORECASE)
"""Names of variables and options that are a path of data."""
_SAVES = ("save", "save_model", "save_checkpoint", "save_checkpoints")
"""Options without which some scripts save nothing."""
_LONGEST = 200
"""Of a path, in characters."""
_ROUNDS = 3
"""Of following names to names: `out_dir = "out"`, `path = join(out_dir, "a")`, `file = join(path, "b")`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScriptOption:
    """One argument of the script's command line."""

    name: str
    """As it is written: `--seed`, or `epochs` where it has no dashes."""
    default: Any
    required: bool
    is_flag: bool = False
    """It takes no value, and is off unless it is given."""

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
    options: tuple[ScriptOption, ...]
    numbers: dict[str, int | None]
    """Names that are given whole numbers, as `max_steps = 100`; None: a value that is not written out."""
    shared: frozenset[str]
    """Names of numbers that it divides by its ranks."""
    texts: tuple[str, ...]
    """What it hands to calls that write."""
    reads: tuple[str, ...]
    """Relative paths that it opens, or that are called data, and that it does not write itself."""
    needs_nccl: bool

    def number(self, what: str) -> tuple[int, str] | None:
        """Its `steps`, `epochs`, `batch` or `accumulates`, and where that stands; None: not said."""
        names = {"steps": _STEPS, "epochs": _EPOCHS, "batch": _BATCH, "accumulates": _ACCUMULATES}[what]
        for option in self.options:
            if option.word in names and type(option.default) is int and option.default > 0:
                return option.default, option.name
        return next(((value, name) for name in names if (value := self.numbers.get(name)) and value > 0), None)

    @property
    def accumulation(self) -> str | None:
        """What its gradient accumulation is called, as an option or a name; None: it names none."""
        options = (each.name for each in self.options if each.word in _ACCUMULATES)
        return next(options, None) or next((name for name in _ACCUMULATES if name in self.numbers), None)

    @property
    def seed_option(self) -> str | None:
        return next((each.name for each in self.options if each.word in _SEED and each.name.startswith("--")), None)

    @property
    def save_flag(self) -> str | None:
        return next((each.name for each in self.options if each.is_flag and each.word in _SAVES), None)

    @property
    def required(self) -> tuple[ScriptOption, ...]:
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
    words = _words(nodes, options)
    written = tuple(_written(nodes, words))
    return Script(
        path=path, kind=kind, line=line, imports=imports,
        has_main=any(isinstance(each, ast.If) and _is_main(each.test) for each in tree.body),
        only_defines=all(isinstance(each, _DEFINES) or _is_text(each) for each in tree.body),
        trains=any(isinstance(each, ast.Call) and _called(each) in _TRAINS for each in nodes),
        relative=any(isinstance(each, ast.ImportFrom) and each.level > 0 for each in nodes),
        options=options, numbers=_numbers(nodes), shared=frozenset(_shared(nodes)), texts=written,
        reads=tuple(sorted(set(_read(nodes, words, options)) - set(written))),
        needs_nccl=_needs_nccl(nodes, words),
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
    return _last_word(call.func)


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _is_main(test: ast.expr) -> bool:
    names = {each.id for each in ast.walk(test) if isinstance(each, ast.Name)}
    return "__name__" in names


def _options(nodes: list[ast.AST]) -> Iterator[ScriptOption]:
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
        is_flag = told.get("action") == "store_true" or told.get("is_flag") is True
        required = told.get("required") is True or not optional
        yield ScriptOption(name=name, default=told.get("default"), required=required, is_flag=is_flag)


def _constant(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def _numbers(nodes: list[ast.AST]) -> dict[str, int | None]:
    """`max_steps = 100` and `TrainingArguments(max_steps=100)`; of several the first that is written out counts."""
    found: dict[str, int | None] = {}
    for name, node in _assigned(nodes):
        if found.get(name.lower()) is None:
            found[name.lower()] = _whole(node)
    return found


def _whole(node: ast.expr) -> int | None:
    """A whole number that is written out, as `64` or `5 * 8`."""
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return value
        case ast.BinOp(op=ast.Mult(), left=ast.Constant(value=int(left)), right=ast.Constant(value=int(right))):
            return left * right
    return None


def _shared(nodes: list[ast.AST]) -> Iterator[str]:
    """Names of `steps //= world_size` and `batch_size / num_gpus`."""
    for each in nodes:
        match each:
            case ast.AugAssign(op=ast.FloorDiv() | ast.Div(), target=whole, value=by):
                pass
            case ast.BinOp(op=ast.FloorDiv() | ast.Div(), left=whole, right=by):
                pass
            case _:
                continue
        if (name := _last_word(whole)) and any(map(_counts_ranks, ast.walk(by))):
            yield name.lower()


def _counts_ranks(node: ast.AST) -> bool:
    """Is it a name such as `world_size`, or a text such as the key of `os.environ["WORLD_SIZE"]`?"""
    text = node.value if isinstance(node, ast.Constant) else _last_word(node)
    return isinstance(text, str) and bool(_RANKS.search(text))


def _last_word(node: ast.AST) -> str:
    """Name of a variable or attribute; empty: it is none."""
    return str(getattr(node, "attr", None) or getattr(node, "id", ""))


def _words(nodes: list[ast.AST], options: Iterable[ScriptOption]) -> dict[str, str]:
    """Names that stand for one text wherever they are used, such as `out_dir = "out"` and defaults of options."""
    values: dict[str, list[ast.expr]] = {}
    given = [*_assigned(nodes), *_defaults(nodes), *((each.word, ast.Constant(each.default)) for each in options)]
    for name, node in given:
        if _last_word(node) != name and not (isinstance(node, ast.Constant) and node.value is None):
            values.setdefault(name, []).append(node)
    words: dict[str, str] = {}
    for _ in range(_ROUNDS):
        texts = {name: {_text_of(node, words) for node in several} for name, several in values.items()}
        words = {
            name: text for name, (text, *more) in texts.items() if not more and text != "*" and len(text) < _LONGEST
        }
    return words


def _assigned(nodes: list[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    """Names, of variables, attributes and keywords in calls, with what is assigned to them."""
    for each in nodes:
        if isinstance(each, ast.Assign):
            yield from ((name, each.value) for target in each.targets if (name := _last_word(target)))
        elif isinstance(each, ast.AnnAssign) and each.value is not None and (name := _last_word(each.target)):
            yield name, each.value
        elif isinstance(each, ast.Call):
            yield from ((word.arg, word.value) for word in each.keywords if word.arg)


def _defaults(nodes: list[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    """Parameters of functions with their defaults."""
    for each in nodes:
        if isinstance(each, ast.arguments):
            positional = [*each.posonlyargs, *each.args]
            yield from zip(
                (arg.arg for arg in positional[len(positional) - len(each.defaults) :]), each.defaults, strict=True
            )
            yield from ((arg.arg, node) for arg, node in zip(each.kwonlyargs, each.kw_defaults, strict=True) if node)


def _written(nodes: list[ast.AST], words: Mapping[str, str]) -> Iterator[str]:
    """Names of files and folders that it hands to what writes."""
    for each in nodes:
        if not isinstance(each, ast.Call):
            continue
        if _called(each) in _WRITERS or _opens_to_write(each):
            texts = [_path_text(arg, words) for arg in each.args]
            yield from (text for text in texts if PurePosixPath(text).suffix and len(text) < _LONGEST)
        for word in each.keywords:
            if word.arg in ("output_dir", "save_dir", "default_root_dir") and isinstance(_constant(word.value), str):
                yield f"{_constant(word.value)}/"


def _opens_to_write(call: ast.Call) -> bool:
    modes = [*call.args[1:2], *(word.value for word in call.keywords if word.arg == "mode")]
    return _called(call) == "open" and any(str(_constant(mode))[:1] in ("w", "a", "x") for mode in modes)


def _read(nodes: list[ast.AST], words: Mapping[str, str], options: Iterable[ScriptOption]) -> Iterator[str]:
    """Names of files and folders that it hands to what reads, and those of variables called data."""
    for each in nodes:
        if isinstance(each, ast.Call) and each.args and _called(each) in _READERS and not _opens_to_write(each):
            yield from _inner_path(_path_text(each.args[0], words))
    texts = ((each.word, each.default) for each in options if isinstance(each.default, str))
    for name, text in (*words.items(), *texts):
        if _DATA.search(name) and ("/" in text or PurePosixPath(text).suffix):
            yield from _inner_path(str(PurePosixPath(text)))


def _inner_path(text: str) -> Iterator[str]:
    path = PurePosixPath(text)
    is_named = path.name.strip("*") and "\n" not in text and len(text) < _LONGEST
    if is_named and not path.is_absolute() and ".." not in path.parts and "://" not in text:
        yield text


def _path_text(node: ast.expr, words: Mapping[str, str]) -> str:
    """A path as far as it is written out, with `*` for what may be anything, `**` for a folder that may."""
    text = _text_of(node, words)
    folder, slash, name = text.rpartition("/")
    return f"**/{name}" if slash and "*" in folder else str(PurePosixPath(text))


def _text_of(node: ast.expr, words: Mapping[str, str]) -> str:
    try:
        return _text(node, words)
    except RecursionError:  # a sum of a thousand texts
        return "*"


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


def _needs_nccl(nodes: list[ast.AST], words: Mapping[str, str]) -> bool:
    """Its process group has no backend but NCCL."""
    backends = [
        _text_of(value, words)
        for each in nodes
        if isinstance(each, ast.Call) and _called(each) == "init_process_group"
        for value in [*each.args[:1], *(word.value for word in each.keywords if word.arg == "backend")]
    ]
    return backends == ["nccl"]
