"""Modules of the repository that a script uses: its imports followed by name, from function to function, within bounds.

A function counts as used if used code has its name, and a method if it has that of the method or, for those that Python
calls by itself, that of the class. Nothing is run, so this may take in functions that a start never reaches.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath

from gangline.init.python_module import MAIN, TOP, Call, Import, PythonModule, Scope

MOST_MODULES = 150


@dataclass(frozen=True, kw_only=True, slots=True)
class UsedModules:
    """The script, and what it uses of others, the nearest first."""

    modules: tuple[PythonModule, ...]
    """The script is the first."""
    scopes: dict[str, list[Scope]]
    """Used code by path of the module."""
    is_whole: bool
    """Nothing was left out because there is too much of it."""

    def calls(self, module: PythonModule) -> Iterator[Call]:
        """Calls in the used code of one of them."""
        return (call for scope in self.scopes[module.path] for call in scope.calls)


def used_modules(
    script: PythonModule, read: Callable[[str], PythonModule | None], files: Collection[str], roots: Collection[str]
) -> UsedModules:
    """Follow the imports of `script`.

    Args:
        script: The file that is started.
        read: Facts of a file by its path; None if it does not parse.
        files: Paths of the repository.
        roots: Folders on the path of Python, empty for the top, besides that of the script.
    """
    on_path = list(dict.fromkeys([str(PurePosixPath(script.path).parent).removeprefix("."), *roots]))
    return _Search(script, read, files, on_path).result()


class _Search:
    """Names that are used, and what waits for each of those that are not."""

    def __init__(
        self, script: PythonModule, read: Callable[[str], PythonModule | None], files: Collection[str],
        on_path: Collection[str],
    ) -> None:  # fmt: skip
        self._read, self._files, self._on_path = read, files, on_path
        self._found = {script.path: script}
        self._scopes: dict[str, list[Scope]] = {script.path: list(script.scopes.values())}
        self._names: set[str] = set()
        self._new: deque[str] = deque()
        self._waiting: defaultdict[str, list[Callable[[], None]]] = defaultdict(list)
        self._is_whole = True
        for each in script.imports:
            self._import(each, script)
        for scope in script.scopes.values():
            self._use(scope.names)
        for bases in script.bases.values():
            self._use(base.name for base in bases)

    def result(self) -> UsedModules:
        while self._new:
            for then in self._waiting.pop(self._new.popleft(), ()):
                then()
        return UsedModules(modules=tuple(self._found.values()), scopes=self._scopes, is_whole=self._is_whole)

    def _use(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self._names:
                self._names.add(name)
                self._new.append(name)

    def _when_used(self, name: str, then: Callable[[], None]) -> None:
        if name in self._names:
            then()
        else:
            self._waiting[name].append(then)

    def _add(self, path: str) -> None:
        """Take in a module: its code at the top is used, the rest waits for its names."""
        if path in self._found:
            return
        if len(self._found) >= MOST_MODULES:
            self._is_whole = False
            return
        if (module := self._read(path)) is None:
            return
        self._found[path], self._scopes[path] = module, []
        for name, scope in module.scopes.items():
            owner, _, last = name.rpartition(".")
            if name == TOP:
                self._take(path, scope)
            elif name != MAIN:
                self._when_used(owner if last.startswith("__") else last, partial(self._take, path, scope))
        for owner, bases in module.bases.items():
            self._when_used(owner, partial(self._use, [base.name for base in bases]))
        for each in module.imports:
            if each.name == "*":
                self._import(each, module)
            else:
                self._when_used(each.bound, partial(self._import, each, module))

    def _take(self, path: str, scope: Scope) -> None:
        self._scopes[path].append(scope)
        self._use(scope.names)

    def _import(self, each: Import, module: PythonModule) -> None:
        """Its bound name is used, so the one that it has in the other module is."""
        if each.name and each.name != "*":
            self._use([each.name])
        for path in _files_of(each, module.path, self._on_path, self._files):
            self._add(path)


def _files_of(each: Import, path: str, on_path: Collection[str], files: Collection[str]) -> Iterator[str]:
    """Files of the repository that an import runs."""
    parts = each.module.split(".") if each.module else []
    if each.level:
        above = PurePosixPath(path).parts[:-1]
        starts = [above[: len(above) - each.level + 1]] if each.level <= len(above) + 1 else []
    else:
        starts = [PurePosixPath(root).parts for root in on_path]
    for start in starts:
        whole = [*start, *parts, *([each.name] if each.name else [])]
        places = ["/".join(whole[:count]) for count in range(len(start) + (0 if each.level else 1), len(whole) + 1)]
        found = [file for place in places if place for file in (f"{place}.py", f"{place}/__init__.py") if file in files]
        if found:
            yield from found
            return
