"""What a failed program missed, by the end of its log: a file or module, a variable of this shell.

A file may be in the folder but not in its commit, or in its commit but not in its code layer.
"""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from gangline.build.code_layer import LayerSelection
from gangline.build.left_out import LeftOut
from gangline.git.repository import Repository
from gangline.launch.sandbox.environment import is_secret, passed_on
from gangline.launch.sandbox.view import is_there
from gangline.sanitize import clean
from gangline.spec.config.line import ProjectTable
from gangline.spec.globs import any_matches, is_inside

_ABSENT = re.compile(r"(?:FileNotFoundError|No such file or directory).*?['\"]([^'\"]+)['\"]")
_SHOWN = 3

_VARIABLE = re.compile(r"(?:KeyError:|[Ee]nvironment variable) ['\"]([A-Za-z_]\w*)['\"]")
MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_METADATA = re.compile(r"PackageNotFoundError: No package metadata was found for ([\w.-]+)")


def path_outside_layer(lines: Sequence[str], repository: Repository, tree: str, project: ProjectTable) -> str:
    """Sentence about a file or module that a program missed and that its code layer lacks, by the end of its log."""
    names = (name for line in reversed(lines) for name in _missed_files(line))
    for path in (each for name in names for each in _in_layer(name) if is_inside(each)):
        if repository.has(f"{tree}:{path}"):
            if reason := _why_left_out(path, files_left_out(repository, tree, project)):
                return f"; {path} is in the commit, but {reason}"
        elif is_there(repository.root / path):
            reason = "git ignores it" if repository.ignores(path) else "it is not committed"
            return f"; {path} is in the folder, but {reason}: a run has only the files of the commit"
    return ""


def files_left_out(repository: Repository, tree: str, project: ProjectTable) -> LeftOut:
    """Tracked files of the line's folder that `project` leaves out of the code layer."""
    selection = LayerSelection.of(project, repository)
    return selection.left_out(selection.placed(repository.entries_and_submodules(tree)))


def search_text(searches: Iterable[str], left_out: LeftOut, *, folder: str) -> str:
    """Sentence about searches that would have found files which are left out; empty if there were none.

    Args:
        searches: Patterns and folders, relative to the layer.
        left_out: Paths relative to the line's folder.
        folder: The line's folder in the layer; empty: its top.
    """
    head = f"{folder}/" if folder else ""
    for own in (each.removeprefix(head) for each in searches if each.startswith(head)):
        if found := [path for path in left_out.paths if any_matches(path, (own, f"{own}/**"))]:
            more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
            named = ", ".join(clean(path, limit=80) for path in found[:_SHOWN]) + more
            return f"the program looked for {clean(own, limit=80)}: {_by(left_out)} leaves out {named}"
    return ""


def missing_variable(lines: Sequence[str], environ: Mapping[str, str], given: Collection[str]) -> str:
    """Sentence about a variable that is set in `environ`, and that ranks do not get; `given` are those of the line."""
    kept = {*given, *passed_on(environ)}
    name = next((name for name in _names(_VARIABLE, lines) if environ.get(name) and name not in kept), None)
    if name is None:
        return ""
    value = f"secret:env:{name}" if is_secret(name) else "..."
    return f"; {name} is set here, but ranks do not get it: in line.toml, [train.env] with {name} = {json.dumps(value)}"


def missing_package(lines: Sequence[str], files: Iterable[str], *, path: Sequence[str], lock: str | None) -> str:
    """Sentence about a module, or the version of a package, that was not found.

    Args:
        lines: End of the log.
        files: Of the commit, from the folder of the line.
        path: `project.path`.
        lock: `env.lock`; None: ranks run in the environment of gangline.
    """
    if (name := next(_names(_METADATA, lines), None)) is not None:
        return f"; {name} is not installed, as no package of the commit itself is: except PackageNotFoundError"
    found = next(_names(MODULE, lines), None)
    if found is None:
        return ""
    module = found.partition(".")[0]
    for folder in (folder for file in files for folder in _folders_of(module, file)):
        if folder not in path:
            return (
                f"; {module} is in {folder} of the commit: in line.toml, project.path = {json.dumps([*path, folder])}"
            )
    if lock is not None:
        return f"; the environment of {lock} has no {module}: add its package, and lock again"
    return (
        f"; ranks run in the environment of gangline, which has no {module}: env.lock names a lock of the commit's"
        " packages, or install it there"
    )


def _why_left_out(path: str, left_out: LeftOut) -> str:
    if path == "line.toml":
        return "it is no file of a run, which has its values: program.options is the table [model]"
    if any(each == path or each.startswith(f"{path}/") for each in left_out.paths):
        return f"{_by(left_out)} of line.toml leaves it out"
    return ""


def _by(left_out: LeftOut) -> str:
    return " or ".join(left_out.keys)


def _missed_files(line: str) -> Iterator[str]:
    if (match := _ABSENT.search(line)) is not None:
        yield match[1]
    if (match := MODULE.search(line)) is not None:
        path = match[1].replace(".", "/")
        yield from (f"{path}.py", f"{path}/__init__.py")


def _in_layer(name: str) -> Iterator[str]:
    """Possible paths in the commit of a rank's path: ranks work in a folder `code`, or in `code/DIGEST`."""
    path = PurePosixPath(name)
    if not path.is_absolute():
        yield str(path)
        return
    for index, part in enumerate(path.parts):
        if part == "code":
            rest = path.parts[index + 1 :]
            yield from (str(PurePosixPath(*each)) for each in (rest, rest[1:]) if each)


def _names(pattern: "re.Pattern[str]", lines: Sequence[str]) -> Iterator[str]:
    return (match[1] for line in reversed(lines) if (match := pattern.search(line)))


def _folders_of(module: str, file: str) -> Iterator[str]:
    """Folder of `file` in which the package or file of `module` is; not the top, which is on the path."""
    parts = PurePosixPath(file).parts
    if len(parts) > 1 and parts[-1] == f"{module}.py":
        yield "/".join(parts[:-1])
    if len(parts) > 2 and parts[-2:] == (module, "__init__.py"):
        yield "/".join(parts[:-2])
