"""Analysis of a training script by its syntax tree: options, numbers, files; nothing is imported or run.

Files of a repository are parsed when they are asked for.
"""

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from gangline.init.python_module import PythonModule, last_name, read_module
from gangline.init.rank_search import search_ranks
from gangline.init.training_script import Script, ScriptOption
from gangline.init.used_modules import UsedModules, used_modules

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


def parse(data: bytes) -> ast.Module | None:
    """Syntax tree of a file; None if this version of Python cannot parse it."""
    try:
        return ast.parse(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


OPTION_CALLS = frozenset({"add_argument", "option", "argument", *_FIELD_PARSERS})
"""Calls that make options."""


def read_options(tree: ast.Module) -> tuple[ScriptOption, ...]:
    """Options that a file makes."""
    return tuple(_options(list(ast.walk(tree))))


def read_script(
    module: PythonModule, tree: ast.Module, *, options: tuple[ScriptOption, ...], options_path: str
) -> Script:  # fmt: skip
    """The script that `module` is, by its syntax tree."""
    nodes = list(ast.walk(tree))
    known = _known_texts(nodes, options)
    written = tuple(_written(nodes, known))
    return Script(
        path=module.path, module=module,
        relative=any(isinstance(node, ast.ImportFrom) and node.level > 0 for node in nodes),
        options=options, options_path=options_path, numbers=_numbers(nodes), shared=frozenset(_shared(nodes)),
        texts=written, reads=tuple(sorted(set(_read(nodes, known, options)) - set(written))),
        needs_nccl=_needs_nccl(nodes, known), takes_words=not options and _takes_words(nodes),
        reads_seed=any(isinstance(node, ast.Constant) and node.value == "GANGLINE_SEED" for node in nodes),
        by_hydra=any(isinstance(node, ast.FunctionDef) and any(map(_is_hydra, node.decorator_list)) for node in nodes),
    )  # fmt: skip


def _called(call: ast.Call) -> str:
    """Last name of the called expression."""
    return last_name(call.func)


def _is_hydra(decorator: ast.expr) -> bool:
    """`@hydra.main(...)`."""
    match decorator:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="hydra"), attr="main")):
            return True
    return False


def _options(nodes: list[ast.AST]) -> Iterator[ScriptOption]:
    """Arguments of argparse, click and similar libraries."""
    yield from _fields(nodes)
    for node in nodes:
        if not isinstance(node, ast.Call) or _called(node) not in ("add_argument", "option", "argument"):
            continue
        names = [name for arg in node.args if isinstance(name := _constant(arg), str)]
        if not names:
            continue
        name = max(names, key=len)
        given = {keyword.arg: keyword.value for keyword in node.keywords}
        settings = {name: _constant(value) for name, value in given.items()}
        many = settings.get("nargs") in ("?", "*", "...") or last_name(given.get("nargs")) == "REMAINDER"
        is_flag = settings.get("action") == "store_true" or settings.get("is_flag") is True
        required = settings.get("required") is True or not (name.startswith("-") or many)
        default = _default(given.get("default"))
        yield ScriptOption(name=name, default=default, required=required, is_flag=is_flag)


def _fields(nodes: list[ast.AST]) -> Iterator[ScriptOption]:
    """Fields of the classes that are handed to tyro or HfArgumentParser, which make options of them."""
    parsers = [each for each in nodes if isinstance(each, ast.Call) and _called(each) in _FIELD_PARSERS]
    parsed = {last_name(name) for parser in parsers for arg in parser.args for name in ast.walk(arg)}
    for node in nodes:
        if not isinstance(node, ast.ClassDef) or node.name not in parsed:
            continue
        for field in node.body:
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                default, required = _default(field.value), field.value is None
                yield ScriptOption(
                    name=f"--{field.target.id}", default=default, required=required, is_flag=default is False
                )


def _default(node: ast.expr | None) -> Any:
    """Value of a literal or a product of numbers; `...` if it is another expression, None if there is none."""
    if node is None or (isinstance(node, ast.Constant) and node.value is None):
        return None
    value = _whole(node)
    value = _constant(node) if value is None else value
    return ... if value is None else value


def _takes_words(nodes: list[ast.AST]) -> bool:
    """Whether it indexes `sys.argv` or asks for its length."""
    held = (node.value for node in nodes if isinstance(node, ast.Subscript))
    asked = (arg for node in nodes if isinstance(node, ast.Call) and _called(node) == "len" for arg in node.args)
    return any(last_name(each) == "argv" for each in (*held, *asked))


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
    for node in nodes:
        match node:
            case ast.AugAssign(op=ast.FloorDiv() | ast.Div(), target=whole, value=by):
                pass
            case ast.BinOp(op=ast.FloorDiv() | ast.Div(), left=whole, right=by):
                pass
            case _:
                continue
        if (name := last_name(whole)) and any(map(_counts_ranks, ast.walk(by))):
            yield name.lower()


def _counts_ranks(node: ast.AST) -> bool:
    """Whether it is a name such as `world_size`, or a text such as the key of `os.environ["WORLD_SIZE"]`."""
    text = node.value if isinstance(node, ast.Constant) else last_name(node)
    return isinstance(text, str) and bool(_RANKS.search(text))


def _known_texts(nodes: list[ast.AST], options: Iterable[ScriptOption]) -> dict[str, str]:
    """Names that have one text wherever they are used, such as `out_dir = "out"` and defaults of options."""
    values: dict[str, list[ast.expr]] = {}
    assigned = [
        *_assigned(nodes),
        *_defaults(nodes),
        *((option.key, ast.Constant(option.default)) for option in options if option.default is not ...),
    ]
    for name, node in assigned:
        if last_name(node) != name and not (isinstance(node, ast.Constant) and node.value is None):
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
    for node in nodes:
        if isinstance(node, ast.Assign):
            yield from ((name, node.value) for target in node.targets if (name := last_name(target)))
        elif isinstance(node, ast.AnnAssign) and node.value is not None and (name := last_name(node.target)):
            yield name, node.value
        elif isinstance(node, ast.Call):
            yield from ((keyword.arg, keyword.value) for keyword in node.keywords if keyword.arg)


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
    for node in nodes:
        if not isinstance(node, ast.Call):
            continue
        if _called(node) in _WRITERS or _opens_to_write(node):
            texts = [_path_text(arg, known) for arg in node.args]
            yield from (text for text in texts if PurePosixPath(text).suffix and len(text) < _MOST_PATH)
        for keyword in node.keywords:
            if keyword.arg in _FOLDERS and isinstance(folder := _constant(keyword.value), str):
                yield f"{folder}/"


def _opens_to_write(call: ast.Call) -> bool:
    modes = [*call.args[1:2], *(keyword.value for keyword in call.keywords if keyword.arg == "mode")]
    return _called(call) == "open" and any(str(_constant(mode))[:1] in ("w", "a", "x") for mode in modes)


def _read(nodes: list[ast.AST], known: Mapping[str, str], options: Iterable[ScriptOption]) -> Iterator[str]:
    """Paths in calls that read, and those in variables and options named as data."""
    for node in nodes:
        if isinstance(node, ast.Call) and node.args and _called(node) in _READERS and not _opens_to_write(node):
            yield from _inner_path(_path_text(node.args[0], known))
    texts = ((option.key, option.default) for option in options if isinstance(option.default, str))
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
        for node in nodes
        if isinstance(node, ast.Call) and _called(node) == "init_process_group"
        for value in [*node.args[:1], *(keyword.value for keyword in node.keywords if keyword.arg == "backend")]
    ]
    return backends == ["nccl"]


class PythonFiles:
    """Python files by their paths; facts of each are kept."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._files = files
        self._modules: dict[str, PythonModule | None] = {}
        self._roots = sorted({"", "src", *(package_root(path, files) for path in files if path.endswith(".py"))})

    def module(self, path: str) -> PythonModule | None:
        """Facts of the file at `path`; None if this version of Python does not parse it."""
        if path not in self._modules:
            tree = parse(self._files[path])
            self._modules[path] = None if tree is None else read_module(path, tree)
        return self._modules[path]

    def script(self, path: str) -> Script | None:
        """The script at `path`, with its kind by the modules that it uses; None if it does not parse."""
        module, tree = self.module(path), parse(self._files[path])
        if module is None or tree is None:
            return None
        used = used_modules(module, self.module, self._files.keys(), self._roots)
        options, options_path = next(self._options(used), ((), path))
        script = read_script(module, tree, options=options, options_path=options_path)
        return replace(script, search=search_ranks(used))

    def _options(self, used: UsedModules) -> Iterator[tuple[tuple[ScriptOption, ...], str]]:
        """Options of each used module that makes some, the script first."""
        for module in used.modules:
            if any(call.name in OPTION_CALLS for call in used.calls(module)):
                tree = parse(self._files[module.path])
                if tree is not None and (options := read_options(tree)):
                    yield options, module.path


def is_in_package(path: str, files: Collection[str]) -> bool:
    """Whether the folder of a file is a package."""
    return str(PurePosixPath(path).parent / "__init__.py") in files


def package_root(path: str, files: Collection[str]) -> str:
    """Folder from which the outermost package of a file is imported; of a file in none, the top."""
    place = PurePosixPath(path).parent
    if not is_in_package(path, files):
        return ""
    while str(place / "__init__.py") in files and place.parts:
        place = place.parent
    return "" if str(place) == "." else str(place)
