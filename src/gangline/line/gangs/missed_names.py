"""What a failed program missed of its surroundings, by the end of its log: a variable of this shell, a module. Pure."""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from gangline.launch.sandbox.environment import is_secret, passed_on

_VARIABLE = re.compile(r"(?:KeyError:|[Ee]nvironment variable) ['\"]([A-Za-z_]\w*)['\"]")
MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_METADATA = re.compile(r"PackageNotFoundError: No package metadata was found for ([\w.-]+)")


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


def _names(pattern: "re.Pattern[str]", lines: Sequence[str]) -> Iterator[str]:
    return (match[1] for line in reversed(lines) if (match := pattern.search(line)))


def _folders_of(module: str, file: str) -> Iterator[str]:
    """Folder of `file` in which the package or file of `module` is; not the top, which is on the path."""
    parts = PurePosixPath(file).parts
    if len(parts) > 1 and parts[-1] == f"{module}.py":
        yield "/".join(parts[:-1])
    if len(parts) > 2 and parts[-2:] == (module, "__init__.py"):
        yield "/".join(parts[:-2])
