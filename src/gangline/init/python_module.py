"""Facts of one Python file that other files need: its imports, what its functions use, the bases of its classes."""

import ast
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

_TRAINS = re.compile(r"(pre)?train(_.*)?|fine_?tune(_.*)?|(partial_)?fit(_.*)?|backward|step|grad|value_and_grad")
"""Names of what a training calls."""
_STARTS = re.compile(rf"main|run|cli|CLI|LightningCLI|Fire|app|start|launch|{_TRAINS.pattern}")
"""Names of what a script calls at its top level to begin."""
_DEFINES = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign)
TOP, MAIN = "", "__main__"
"""Scopes of the code that an import runs, and of what only a start runs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Import:
    """One imported module, or one name of it."""

    module: str
    """Dotted; empty in `from . import name`."""
    level: int
    """Leading dots."""
    name: str | None
    """Name of the module that is imported; `*` all of them, None the module itself."""
    bound: str
    """Name that it has in this file."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """A call in a scope."""

    name: str
    """Last name of what is called, as its module has it: `Trainer` of `lightning.Trainer(...)`."""
    module: str
    """Dotted module that its first name comes from; empty where this file defines it, or nothing is known."""
    line: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Scope:
    """The code of a file outside of functions, or a function; code of inner functions counts as its own."""

    names: frozenset[str]
    """Names of variables and attributes that it uses."""
    calls: tuple[Call, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class PythonModule:
    """A file, by what other files can use of it."""

    path: str
    imports: tuple[Import, ...]
    scopes: Mapping[str, Scope]
    """Scopes by the name of a function, `Class.method` of a method; `TOP` and `MAIN`."""
    bases: Mapping[str, tuple[Call, ...]]
    """Base classes, by class."""
    has_main: bool
    """It asks whether it was started."""
    only_defines: bool
    """Its top level has only definitions, so starting it does nothing."""
    begins: bool
    """Its top level trains, or calls a function of the file or hands it to a caller."""
    trains: bool
    """It calls something that is named as a training."""


def read_module(path: str, tree: ast.Module) -> PythonModule:
    """Facts of the parsed file at `path`."""
    reader = _Reader()
    for statement in tree.body:
        reader.read(statement, MAIN if _is_main_guard(statement) else TOP)
    origins = {each.bound: (_origin(each), each.name or "") for each in reader.imports}
    calls = {name: tuple(_call(node, origins) for node in nodes) for name, nodes in reader.calls.items()}
    scopes = {name: Scope(names=frozenset(reader.names[name]), calls=calls.get(name, ())) for name in reader.names}
    has_main = MAIN in reader.names
    begins = not reader.handed.isdisjoint(scopes) or any(_STARTS.fullmatch(call.name) for call in calls.get(TOP, ()))
    return PythonModule(
        path=path, imports=tuple(reader.imports), scopes=scopes,
        bases={name: tuple(_call(base, origins) for base in bases) for name, bases in reader.bases.items()},
        has_main=has_main, only_defines=all(isinstance(each, _DEFINES) or _is_text(each) for each in tree.body),
        begins=begins,
        trains=any(_TRAINS.fullmatch(call.name) for scope in scopes.values() for call in scope.calls),
    )  # fmt: skip


def last_name(node: ast.AST | None) -> str:
    """Name of a variable or attribute; empty: it is none."""
    return str(getattr(node, "attr", None) or getattr(node, "id", ""))


class _Reader:
    """Imports of a file, and the names and calls of each of its scopes, in one pass."""

    def __init__(self) -> None:
        self.imports: list[Import] = []
        self.names: defaultdict[str, set[str]] = defaultdict(set)
        self.calls: defaultdict[str, list[ast.expr]] = defaultdict(list)
        self.bases: dict[str, list[ast.expr]] = {}
        self.handed: set[str] = set()
        """Names that are called at the top, or handed to what is called there."""

    def read(self, node: ast.AST, scope: str, owner: str = "") -> None:
        """Take in a node and all below it; `owner` is the class whose body it is in."""
        waiting = [(node, scope, owner)]
        while waiting:
            node, scope, owner = waiting.pop()
            inside = self._scope_of(node, scope, owner)
            self._take(node, inside)
            within = node.name if isinstance(node, ast.ClassDef) and inside in (TOP, MAIN) else ""
            waiting += [(child, inside, within) for child in ast.iter_child_nodes(node)]

    def _scope_of(self, node: ast.AST, scope: str, owner: str) -> str:
        """Scope of what is in a node: functions at the top and methods of classes there have one of their own."""
        if scope not in (TOP, MAIN) or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return scope
        return f"{owner}.{node.name}" if owner else node.name

    def _take(self, node: ast.AST, scope: str) -> None:
        names = self.names[scope]
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                names.add(name)
            case ast.Call(func=function, args=arguments):
                self.calls[scope].append(function)
                if scope == TOP:
                    self.handed |= {last_name(function), *map(last_name, arguments)} - {""}
            case ast.ClassDef(name=name, bases=bases):
                self.bases[name] = bases
            case ast.Import(names=aliases):
                for alias in aliases:
                    bound = alias.asname or alias.name.partition(".")[0]
                    self.imports.append(Import(module=alias.name, level=0, name=None, bound=bound))
            case ast.ImportFrom(module=module, level=level, names=aliases):
                for alias in aliases:
                    bound = alias.asname or alias.name
                    self.imports.append(Import(module=module or "", level=level, name=alias.name, bound=bound))


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _is_main_guard(statement: ast.stmt) -> bool:
    """`if __name__ == "__main__":`, as far as it asks for `__name__`."""
    asked = ast.walk(statement.test) if isinstance(statement, ast.If) else ()
    return any(isinstance(each, ast.Name) and each.id == "__name__" for each in asked)


def _origin(each: Import) -> str:
    """Dotted module that the bound name stands for or comes from; with dots in front for a relative import."""
    is_top = each.name is None and each.module.startswith(f"{each.bound}.")  # `import a.b` binds `a`
    return each.bound if is_top else "." * each.level + each.module


def _call(function: ast.expr, origins: Mapping[str, tuple[str, str]]) -> Call:
    """The called expression; of `a.b.C` the module is what `a` was imported as, with `.b`.

    `origins` has module and own name of what is imported, by the name that it has here.
    """
    inner, between = function, list[str]()
    while isinstance(inner, ast.Attribute):
        inner = inner.value
        between.append(str(getattr(inner, "attr", "")))
    module, real = origins.get(inner.id, ("", "")) if isinstance(inner, ast.Name) else ("", "")
    name = real if real and inner is function else last_name(function)
    dotted = ".".join(filter(None, [module, *reversed(between)])) if module else ""
    return Call(name=name, module=dotted, line=function.lineno)
