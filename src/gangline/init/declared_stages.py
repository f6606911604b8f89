"""Trainings that a repository declares for another tool: stages of dvc.yaml, entry points of MLproject; its DVC data.

Read as data, never run. Only commands that start one Python script without a shell are taken; others are named.
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

from gangline.data.pointers import (
    CONFIG,
    LOCK,
    STAGES,
    Pointer,
    is_dvc_file,
    read_dvc_file,
    read_lock,
    read_remotes,
    source_url,
)
from gangline.errors import ConfigError

DVC, MLFLOW, PARAMETERS = "dvc.yaml", "MLproject", "params.yaml"
FILES = (DVC, MLFLOW, PARAMETERS)
"""Files at the top of a repository that declare stages."""
UNKNOWN = "?"
"""Word of a parameter without a value."""
_SHELL = re.compile(r"[;&|<>`\n]|\$[(\w]|^\s*\w+=")
_OF_DVC = re.compile(r"\$\{\s*([\w.]+)\s*\}")
_OF_MLFLOW = re.compile(r"\{\s*(\w+)\s*\}")
_PYTHON = re.compile(r"python[\d.]*")
_SEED = "seed"
_METRICS = (".json", ".jsonl", ".csv")
_MOST_PARAMETERS, _DEEPEST = 10_000, 50


@dataclass(frozen=True, kw_only=True, slots=True)
class DeclaredStage:
    """One command of such a file."""

    file: str
    name: str
    words: tuple[str, ...] = ()
    """Words of the command, with values of parameters; empty unless it starts a Python script of the repository."""
    script: str = ""
    outputs: tuple[str, ...] = ()
    """Globs of what it writes, without `metrics`."""
    metrics: str | None = None
    reads: tuple[str, ...] = ()
    numbers: dict[str, int] = field(default_factory=dict)
    """Whole numbers among its parameters, by the last part of their names."""

    def __str__(self) -> str:
        return f"{self.name} of {self.file}"


def declared_stages(files: Mapping[str, bytes]) -> tuple[list[DeclaredStage], list[str]]:
    """Stages in the order of their files, and notes on files that could not be read."""
    stages: list[DeclaredStage] = []
    notes: list[str] = []
    for name, read in ((DVC, _of_dvc), (MLFLOW, _of_mlflow)):
        if name in files:
            try:
                stages += read(files)
            except ValueError as error:
                notes.append(f"{name} is not read: {error}")
    return stages, notes


def _of_dvc(files: Mapping[str, bytes]) -> Iterator[DeclaredStage]:
    parameters = _flat(_yaml(files.get(PARAMETERS, b"")))
    for name, stage in _table(_yaml(files[DVC]), "stages").items():
        if not isinstance(stage, dict) or not isinstance(command := stage.get("cmd"), str):
            yield DeclaredStage(file=DVC, name=str(name))
            continue
        known = {key: value for key in _paths(stage.get("params")) for key, value in _below(parameters, key)}
        is_here = str(stage.get("wdir", ".")) in (".", "./")
        words = _words(command, _OF_DVC, parameters) if is_here else ()
        metrics = next((path for path in _paths(stage.get("metrics")) if path.endswith(_METRICS)), None)
        written = [path for key in ("outs", "metrics") for path in _paths(stage.get(key)) if path != metrics]
        yield _stage(
            DeclaredStage(
                file=DVC, name=str(name), words=words, metrics=metrics,
                outputs=tuple(path if PurePosixPath(path).suffix else f"{path}/**" for path in written),
                reads=tuple(path for path in _paths(stage.get("deps")) if not path.endswith(".py")),
                numbers={key.rpartition(".")[2]: value for key, value in known.items() if type(value) is int},
            ),
            files,
        )  # fmt: skip


def _of_mlflow(files: Mapping[str, bytes]) -> Iterator[DeclaredStage]:
    for name, entry in _table(_yaml(files[MLFLOW]), "entry_points").items():
        command = entry.get("command") if isinstance(entry, dict) else None
        if not isinstance(command, str):
            continue
        stated = entry.get("parameters")
        values = {
            str(key): each.get("default") if isinstance(each, dict) else None
            for key, each in (stated.items() if isinstance(stated, dict) else ())
        }
        words = _words(command, _OF_MLFLOW, values)
        numbers = {key: value for key, value in values.items() if type(value) is int}
        yield _stage(
            DeclaredStage(file=MLFLOW, name=str(name), words=words, numbers=numbers), files
        )  # fmt: skip


def _stage(stage: DeclaredStage, files: Mapping[str, bytes]) -> DeclaredStage:
    """Add the script that the stage starts, or take away its words if it starts none of these files."""
    match stage.words:
        case (_, "-m", module, *_):
            stem = module.replace(".", "/")
            script = next((path for path in (f"{stem}.py", f"{stem}/__main__.py") if path in files), "")
        case (_, path, *_) if not path.startswith("-"):
            script = str(PurePosixPath(path)) if str(PurePosixPath(path)) in files else ""
        case _:
            script = ""
    return replace(stage, script=script, words=stage.words if script else ())


def _words(command: str, pattern: re.Pattern[str], values: Mapping[str, Any]) -> tuple[str, ...]:
    """Words of a command that needs no shell and starts Python, with `python` for its name; else none."""

    def value(match: re.Match[str]) -> str:
        if match[1].rpartition(".")[2] == _SEED:
            return "{seed}"
        found = values.get(match[1])
        return UNKNOWN if found is None or isinstance(found, (dict, list)) else str(found)

    try:
        command = pattern.sub(lambda match: "".join(match[0].split()), command.strip())
        words = [] if _SHELL.search(command) else shlex.split(command)
    except ValueError:  # a quotation that does not end
        words = []
    if not words or not _PYTHON.fullmatch(words[0]):
        return ()
    return ("python", *(pattern.sub(value, word) for word in words[1:]))


def _paths(value: Any) -> list[str]:
    """Names in a list of DVC, each alone or with a table of options; none that lead out of the repository."""
    items = value if isinstance(value, list) else []
    names = [each for item in items for each in (item if isinstance(item, dict) else [item]) if isinstance(each, str)]
    return [name for name in names if not name.startswith(("/", "..")) and "://" not in name]


def _below(parameters: Mapping[str, Any], key: str) -> Iterator[tuple[str, Any]]:
    yield from ((name, value) for name, value in parameters.items() if name == key or name.startswith(f"{key}."))


def _flat(table: Any) -> dict[str, Any]:
    """Values by the dotted names of their tables, which may be many times in one another by YAML's aliases."""
    found: dict[str, Any] = {}
    todo = [("", table)]
    while todo:
        prefix, inner = todo.pop()
        for name, value in inner.items() if isinstance(inner, dict) else ():
            if isinstance(value, dict):
                todo.append((f"{prefix}{name}.", value))
            else:
                found[f"{prefix}{name}"] = value
        if len(todo) + len(found) > _MOST_PARAMETERS or prefix.count(".") > _DEEPEST:
            raise ValueError(
                f"{PARAMETERS} has more than {_MOST_PARAMETERS} values, or tables in tables without an end"
            )
    return found


def _table(value: Any, name: str) -> Mapping[Any, Any]:
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def _yaml(data: bytes) -> Any:
    try:
        import yaml
    except ImportError as error:
        raise ValueError("nothing here reads YAML; pip install 'gangline[kubernetes]'") from error
    try:
        return yaml.safe_load(data.decode())
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"no YAML: {str(error).splitlines()[0] if str(error) else error!r}") from error


_SHOWN = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class DvcData:
    """Files and folders that DVC tracks for a repository."""

    pointers: tuple[Pointer, ...] = ()
    url: str = ""
    """URL of the source that the default remote is read by; empty: it has none."""
    problem: str = ""

    @staticmethod
    def of(files: Mapping[str, bytes], *, base: str) -> "DvcData":
        """Data of a repository with these files; relative remotes begin at the folder `base`."""
        if CONFIG not in files:
            return DvcData()
        try:
            pointers = [
                pointer for path, data in files.items() if is_dvc_file(path) for pointer in read_dvc_file(path, data)
            ]
            if LOCK in files:
                pointers += read_lock(LOCK, files[LOCK], files.get(STAGES))
            url = source_url(read_remotes(files[CONFIG]).url_of(None), base)
        except ConfigError as error:
            return DvcData(problem=str(error))
        return DvcData(pointers=tuple(pointers), url=url)

    def tracks(self, path: str) -> bool:
        """Whether DVC has the path, so that git ignores it for good reason."""
        return any(f"{path}/".startswith(f"{pointer.path}/") for pointer in self.pointers)

    def notes(self, reads: Sequence[str]) -> Iterator[str]:
        """Advice for the owner, whose script reads the paths `reads`."""
        if self.problem:
            yield f"data of DVC are not found: {self.problem}"
        placed = sorted(pointer.path for pointer in self.pointers if not pointer.is_output)
        made = [
            pointer for pointer in self.pointers
            if pointer.is_output and any(f"{path}/".startswith(f"{pointer.path}/") for path in reads)
        ]  # fmt: skip
        if placed:
            more = f" and {len(placed) - _SHOWN} more" if len(placed) > _SHOWN else ""
            yield (
                f"DVC tracks {', '.join(placed[:_SHOWN])}{more}: a run has them once site.toml names their remote:"
                f' [source.dvc] url = "{self.url}"'
            )
        if made:
            globs = ", ".join(f'"{pointer.path}/**"' if pointer.is_folder else f'"{pointer.path}"' for pointer in made)
            yield (
                f'dvc.lock has what other stages wrote; a run gets it by project.include = ["**", {globs}] and'
                f' [source.dvc] url = "{self.url}" of site.toml'
            )
