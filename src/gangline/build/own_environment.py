"""Environment of this interpreter: its digest and versions, and packages installed editable from the work tree.

Modules of an editable package are the files on disk. That is harmless where the code layer has the same modules, as
it comes first on the path; what the layer's code imports and only the work tree has is refused before anything
starts.
"""

import io
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from gangline import __version__
from gangline.errors import ConfigError
from gangline.spec.codec import digest
from gangline.spec.config.line import ProjectTable
from gangline.spec.python_environment import paths_from_top

NOT_LOCKED = "environment not locked: that of gangline itself"


@cache
def installed_versions() -> dict[str, str]:
    """Distribution to version, read from the names of their metadata folders on `sys.path`."""
    found: dict[str, str] = {}
    for folder in dict.fromkeys(sys.path):
        for entry in sorted(Path(folder or ".").glob("*.dist-info")):
            name, _, version = entry.name.removesuffix(".dist-info").rpartition("-")
            found.setdefault(name.lower().replace("_", "-"), version)
    return found


@cache
def interpreter_digest() -> str:
    """Digest of this Python, its platform and all installed distributions."""
    return digest(
        {"python": software_versions()["python"], "platform": sys.platform, "installed": installed_versions()}
    )


def software_versions() -> dict[str, str]:
    """What a record says about the software, as far as it is there."""
    found = {"gangline": __version__, "python": ".".join(map(str, sys.version_info[:3]))}
    return found | {name: installed_versions()[name] for name in ("torch", "numpy") if name in installed_versions()}


_OWN = "gangline"
_MISSING = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")


@dataclass(frozen=True, slots=True)
class Editable:
    """A package whose modules lie in `folder`."""

    name: str
    folder: Path
    modules: tuple[str, ...]


def editable_packages_in(root: Path, path: Sequence[str] | None = None) -> Iterator[Editable]:
    """Those of this interpreter (or of `path`) that lie below `root`; gangline itself is none of a model."""
    for entry in map(Path, sys.path if path is None else path):
        for file in sorted(entry.glob("*.dist-info/direct_url.json")):
            folder = _source(file)
            name = file.parent.name.partition("-")[0].replace("_", "-")
            if folder is not None and folder.is_relative_to(root) and name != _OWN:
                yield Editable(name, folder, tuple(_modules(file.with_name("top_level.txt"), folder)))


def refuse_work_tree(layer: bytes, project: ProjectTable, editables: Iterable[Editable], *, folder: str = "") -> None:
    """Raises ConfigError where code of `layer` imports a module that it has not, and that an editable package has."""
    for editable in editables:
        files = _files(layer)
        roots = ("", *(f"{place.strip('/')}/" for place in paths_from_top(folder, project.path)))
        for module in editable.modules:
            if _provides(files, roots, module) or not (user := _user(files, project, module)):
                continue
            raise ConfigError(
                f"{user} imports {module}, which the commit has in none of the folders on its path"
                f" ({', '.join(root or '.' for root in roots)}): it would come from {editable.folder}, the work tree"
                f" as it is now, which {editable.name} is installed editable from; {_remedy(files, module, project)}"
            )


def missing_module(lines: Sequence[str], editables: Iterable[Editable]) -> str:
    """A sentence on a module that a program did not find, by the end of its log, and that an editable package has."""
    names = [match[1] for line in reversed(lines) if (match := _MISSING.search(line))]
    for editable in editables:
        if module := next((name for name in names if name.partition(".")[0] in editable.modules), None):
            return (
                f"; {module} is of {editable.name}, installed editable from {editable.folder}: runs have the files"
                " of the commit, and a sandbox may hide that folder; project.path or project.include finds it in"
                " the commit"
            )
    return ""


def _source(file: Path) -> Path | None:
    """Folder that a package was installed editable from; None: it was not."""
    try:
        origin = json.loads(file.read_bytes())
        is_editable = origin.get("dir_info", {}).get("editable") is True
        url = urlsplit(origin["url"])
    except (OSError, ValueError, AttributeError, KeyError, TypeError):
        return None
    return Path(unquote(url.path)).resolve() if is_editable and url.scheme == "file" else None


def _modules(origin: Path, folder: Path) -> Iterator[str]:
    if origin.is_file():
        yield from origin.read_text("utf-8", "replace").split()
        return
    for place in (folder, folder / "src"):
        yield from (path.stem for path in sorted(place.glob("*.py")) if path.stem.isidentifier())
        yield from (path.parent.name for path in sorted(place.glob("*/__init__.py")))


def _files(layer: bytes) -> dict[str, str]:
    """Text of the Python files of a layer."""
    import zipfile  # a plan asks for the digest of the interpreter alone

    with zipfile.ZipFile(io.BytesIO(layer)) as archive:
        names = [name for name in archive.namelist() if name.endswith(".py")]
        return {name: archive.read(name).decode("utf-8", "replace") for name in names}


def _provides(files: Iterable[str], roots: Iterable[str], module: str) -> bool:
    wanted = tuple(f"{root}{module}{end}" for root in roots for end in (".py", "/"))
    return any(name.startswith(wanted) for name in files)


def _user(files: dict[str, str], project: ProjectTable, module: str) -> str:
    """The file that imports `module`; empty: none is found."""
    named = (project.task or "", *(project.command or ()))
    if any(word == module or word.startswith((f"{module}.", f"{module}:")) for word in named):
        return "line.toml"
    wanted = re.compile(rf"^\s*(?:from|import)\s+{re.escape(module)}\b", re.MULTILINE)
    return next((name for name, text in files.items() if wanted.search(text)), "")


def _remedy(files: Iterable[str], module: str, project: ProjectTable) -> str:
    """The folder of the layer that has it, as the key that puts it on the path."""
    for name in files:
        parts = PurePosixPath(name).parts
        for index, part in enumerate(parts[1:], 1):
            if part in (module, f"{module}.py"):
                path = [*project.path, "/".join(parts[:index])]
                return f"in line.toml, project.path = {json.dumps(path)} takes it from the commit"
    return f"commit {module}, or let project.include have it"
