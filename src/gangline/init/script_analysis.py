"""Analysis of a training script by its syntax tree: kind, options, numbers, files; nothing is imported or run."""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from gangline.init.training_script import Script, ScriptOption

_PLAIN = {"xgboost": "xgboost", "lightgbm": "sklearn", "keras": "keras", "tensorflow": "keras", "jax": "jax",
          "flax": "jax", "sklearn": "sklearn"}  # fmt: skip
_TRAINS = frozenset({"backward", "fit", "partial_fit", "train", "step", "grad", "value_and_grad"})
_DEFINES = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign)
_FIELD_PARSERS = frozenset({"cli", "HfArgumentParser"})
"""Calls that make options of the fields of dataclasses."""
_RANKS = re.compile(
    r"world_?size|num_(processes|gpus|devices|replicas|ranks)|n_?(proc|gpu)|device_count", re.IGNORECASE
)
"""Names that mean the number of ranks."""
_WRITERS = frozenset({"save", "savez", "save_pretrained", "save_model", "save_checkpoint", "dump", "to_csv", "savefig",
                      "CSVLogger"})  # fmt: skip
_READERS = frozenset({"open", "memmap", "load", "loadtxt", "genfromtxt", "fromfile", "read_csv", "read_parquet",
                      "read_json", "read_table", "read_text", "read_bytes", "load_from_disk", "ImageFolder",
                      "File"})  # fmt: skip
_FOLDERS = ("output_dir", "save_dir", "default_root_dir")
_DATA = re.compile(r"data|corpus|train_file", re.IGNORECASE)
"""Names of variables and options that hold a path of data."""
_MOST_PATH = 200
"""Characters of a path."""
_ROUNDS = 3
"""Rounds of substituting names: `out_dir = "out"`, `path = join(out_dir, "a")`, `file = join(path, "b")`."""


def read_script(path: str, data: bytes) -> Script | None:
    """The script in the file at `path`; None if this version of Python cannot parse it."""
    try:
        tree = ast.parse(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    nodes = list(ast.walk(tree))
    imports = frozenset(_imported(nodes))
    kind, line = _kind(nodes, imports)
    options = tuple(_options(nodes))
    known = _known_texts(nodes, options)
    written = tuple(_written(nodes, known))
    return Script(
        path=path, kind=kind, line=line, imports=imports,
        has_main=any(isinstance(each, ast.If) and _is_main(each.test) for each in tree.body),
        only_defines=all(isinstance(each, _DEFINES) or _is_text(each) for each in tree.body),
        trains=any(isinstance(each, ast.Call) and _called(each) in _TRAINS for each in nodes),
        relative=any(isinstance(each, ast.ImportFrom) and each.level > 0 for each in nodes),
        options=options, numbers=_numbers(nodes), shared=frozenset(_shared(nodes)), texts=written,
        reads=tuple(sorted(set(_read(nodes, known, options)) - set(written))),
        needs_nccl=_needs_nccl(nodes, known), takes_words=not options and _takes_words(nodes),
        reads_seed=any(isinstance(each, ast.Constant) and each.value == "GANGLINE_SEED" for each in nodes),
        by_hydra=any(isinstance(each, ast.FunctionDef) and any(map(_is_hydra, each.decorator_list)) for each in nodes),
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
    library = next((kind for name, kind in _PLAIN.items() if name in imports), None)
    return library or ("torch" if "torch" in imports else "plain"), 0


def _imported(nodes: list[ast.AST]) -> Iterator[str]:
    for each in nodes:
        if isinstance(each, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in each.names)
        elif isinstance(each, ast.ImportFrom) and each.module and not each.level:
            yield each.module.partition(".")[0]


def _called(call: ast.Call) -> str:
    """Last name of the called expression."""
    return _last_name(call.func)


def _is_hydra(decorator: ast.expr) -> bool:
    """`@hydra.main(...)`."""
    match decorator:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="hydra"), attr="main")):
            return True
    return False


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _is_main(test: ast.expr) -> bool:
    names = {each.id for each in ast.walk(test) if isinstance(each, ast.Name)}
    return "__name__" in names


def _options(nodes: list[ast.AST]) -> Iterator[ScriptOption]:
    """Arguments of argparse, click and similar libraries."""
    called = {_called(each) for each in nodes if isinstance(each, ast.Call)}
    if called & _FIELD_PARSERS:
        yield from _fields(nodes)
    for each in nodes:
        if not isinstance(each, ast.Call) or _called(each) not in ("add_argument", "option", "argument"):
            continue
        names = [name for arg in each.args if isinstance(name := _constant(arg), str)]
        if not names:
            continue
        name = max(names, key=len)
        settings = {keyword.arg: _constant(keyword.value) for keyword in each.keywords}
        optional = name.startswith("-") or settings.get("nargs") in ("?", "*")
        is_flag = settings.get("action") == "store_true" or settings.get("is_flag") is True
        required = settings.get("required") is True or not optional
        yield ScriptOption(name=name, default=settings.get("default"), required=required, is_flag=is_flag)


def _fields(nodes: list[ast.AST]) -> Iterator[ScriptOption]:
    """Fields of dataclasses, as tyro and HfArgumentParser make options of them."""
    for each in nodes:
        if not isinstance(each, ast.ClassDef) or "dataclass" not in map(_decorator, each.decorator_list):
            continue
        for field in each.body:
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                default = None if field.value is None else _constant(field.value)
                yield ScriptOption(
                    name=f"--{field.target.id}", default=default, required=field.value is None, is_flag=default is False
                )


def _decorator(node: ast.expr) -> str:
    return _last_name(node.func if isinstance(node, ast.Call) else node)


def _takes_words(nodes: list[ast.AST]) -> bool:
    """Whether it indexes `sys.argv` or asks for its length."""
    held = (each.value for each in nodes if isinstance(each, ast.Subscript))
    asked = (arg for each in nodes if isinstance(each, ast.Call) and _called(each) == "len" for arg in each.args)
    return any(_last_name(each) == "argv" for each in (*held, *asked))


def _constant(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def _numbers(nodes: list[ast.AST]) -> dict[str, int | None]:
    """`max_steps = 100` and `TrainingArguments(max_steps=100)`; the first literal of a name counts."""
    found: dict[str, int | None] = {}
    for name, node in _assigned(nodes):
        if found.get(name.lower()) is None:
            found[name.lower()] = _whole(node)
    return found


def _whole(node: ast.expr) -> int | None:
    """Value of a literal such as `64` or `5 * 8`."""
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return value
        case ast.BinOp(op=ast.Mult(), left=ast.Constant(value=int(left)), right=ast.Constant(value=int(right))):
            return left * right
    return None


def _shared(nodes: list[ast.AST]) -> Iterator[str]:
    """Names that are divided by the number of ranks: `steps //= world_size`, `batch_size / num_gpus`."""
    for each in nodes:
        match each:
            case ast.AugAssign(op=ast.FloorDiv() | ast.Div(), target=whole, value=by):
                pass
            case ast.BinOp(op=ast.FloorDiv() | ast.Div(), left=whole, right=by):
                pass
            case _:
                continue
        if (name := _last_name(whole)) and any(map(_counts_ranks, ast.walk(by))):
            yield name.lower()


def _counts_ranks(node: ast.AST) -> bool:
    """Whether it is a name such as `world_size`, or a text such as the key of `os.environ["WORLD_SIZE"]`."""
    text = node.value if isinstance(node, ast.Constant) else _last_name(node)
    return isinstance(text, str) and bool(_RANKS.search(text))


def _last_name(node: ast.AST) -> str:
    """Name of a variable or attribute; empty: it is none."""
    return str(getattr(node, "attr", None) or getattr(node, "id", ""))


def _known_texts(nodes: list[ast.AST], options: Iterable[ScriptOption]) -> dict[str, str]:
    """Names that have one text wherever they are used, such as `out_dir = "out"` and defaults of options."""
    values: dict[str, list[ast.expr]] = {}
    assigned = [*_assigned(nodes), *_defaults(nodes), *((each.key, ast.Constant(each.default)) for each in options)]
    for name, node in assigned:
        if _last_name(node) != name and not (isinstance(node, ast.Constant) and node.value is None):
            values.setdefault(name, []).append(node)
    known: dict[str, str] = {}
    for _ in range(_ROUNDS):
        texts = {name: {_text_of(node, known) for node in expressions} for name, expressions in values.items()}
        known = {
            name: text for name, (text, *more) in texts.items() if not more and text != "*" and len(text) < _MOST_PATH
        }
    return known


def _assigned(nodes: list[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    """Names of variables, attributes and keyword arguments, with the assigned expression."""
    for each in nodes:
        if isinstance(each, ast.Assign):
            yield from ((name, each.value) for target in each.targets if (name := _last_name(target)))
        elif isinstance(each, ast.AnnAssign) and each.value is not None and (name := _last_name(each.target)):
            yield name, each.value
        elif isinstance(each, ast.Call):
            yield from ((keyword.arg, keyword.value) for keyword in each.keywords if keyword.arg)


def _defaults(nodes: list[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    """Parameters of functions with their defaults."""
    for each in nodes:
        if isinstance(each, ast.arguments):
            positional = [*each.posonlyargs, *each.args]
            yield from zip(
                (arg.arg for arg in positional[len(positional) - len(each.defaults) :]), each.defaults, strict=True
            )
            yield from ((arg.arg, node) for arg, node in zip(each.kwonlyargs, each.kw_defaults, strict=True) if node)


def _written(nodes: list[ast.AST], known: Mapping[str, str]) -> Iterator[str]:
    """Paths in calls that write."""
    for each in nodes:
        if not isinstance(each, ast.Call):
            continue
        if _called(each) in _WRITERS or _opens_to_write(each):
            texts = [_path_text(arg, known) for arg in each.args]
            yield from (text for text in texts if PurePosixPath(text).suffix and len(text) < _MOST_PATH)
        for keyword in each.keywords:
            if keyword.arg in _FOLDERS and isinstance(folder := _constant(keyword.value), str):
                yield f"{folder}/"


def _opens_to_write(call: ast.Call) -> bool:
    modes = [*call.args[1:2], *(keyword.value for keyword in call.keywords if keyword.arg == "mode")]
    return _called(call) == "open" and any(str(_constant(mode))[:1] in ("w", "a", "x") for mode in modes)


def _read(nodes: list[ast.AST], known: Mapping[str, str], options: Iterable[ScriptOption]) -> Iterator[str]:
    """Paths in calls that read, and those in variables and options named as data."""
    for each in nodes:
        if isinstance(each, ast.Call) and each.args and _called(each) in _READERS and not _opens_to_write(each):
            yield from _inner_path(_path_text(each.args[0], known))
    texts = ((each.key, each.default) for each in options if isinstance(each.default, str))
    for name, text in (*known.items(), *texts):
        if _DATA.search(name) and ("/" in text or PurePosixPath(text).suffix):
            yield from _inner_path(str(PurePosixPath(text)))


def _inner_path(text: str) -> Iterator[str]:
    path = PurePosixPath(text)
    is_named = path.name.strip("*") and "\n" not in text and len(text) < _MOST_PATH
    if is_named and not path.is_absolute() and ".." not in path.parts and "://" not in text:
        yield text


def _path_text(node: ast.expr, known: Mapping[str, str]) -> str:
    """A path with `*` for unknown parts, `**` for an unknown folder."""
    text = _text_of(node, known)
    folder, slash, name = text.rpartition("/")
    return f"**/{name}" if slash and "*" in folder else str(PurePosixPath(text))


def _text_of(node: ast.expr, known: Mapping[str, str]) -> str:
    try:
        return _text(node, known)
    except RecursionError:  # a sum of a thousand texts
        return "*"


def _text(node: ast.expr, known: Mapping[str, str]) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return known.get(name, "*")
    between, parts = _parts(node)
    return between.join(_text(part, known) for part in parts) or "*"


def _parts(node: ast.expr) -> tuple[str, list[ast.expr]]:
    """Separator and parts of a text; no parts if it is unknown."""
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


def _needs_nccl(nodes: list[ast.AST], known: Mapping[str, str]) -> bool:
    """Whether its process group has only the backend NCCL."""
    backends = [
        _text_of(value, known)
        for each in nodes
        if isinstance(each, ast.Call) and _called(each) == "init_process_group"
        for value in [*each.args[:1], *(keyword.value for keyword in each.keywords if keyword.arg == "backend")]
    ]
    return backends == ["nccl"]
