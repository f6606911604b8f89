"""Python files of a repository, each parsed when it is asked for."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import PurePosixPath

from gangline.init.python_module import PythonModule, read_module
from gangline.init.rank_search import search_ranks
from gangline.init.script_analysis import OPTION_CALLS, parse, read_options, read_script
from gangline.init.training_script import Script, ScriptOption
from gangline.init.used_modules import UsedModules, used_modules


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
                if tree is not None and (found := read_options(tree)):
                    yield found, module.path


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
