"""Reads `line.toml`, `site.toml`, `fabric.toml` and `member.toml` into frozen dataclasses, or says every problem.

Knows where a site is looked for and how `--set` changes a line. Ranks do not import this module: cattrs, which it loads
lazily, is not in their image.
"""

import re
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any, TypeVar

from gangline.errors import ConfigError
from gangline.spec.codec import digest, to_plain
from gangline.spec.config import grammar
from gangline.spec.config.fabric import FabricFile
from gangline.spec.config.infer_table import InferTable
from gangline.spec.config.line import Line
from gangline.spec.config.problems import ConfigProblem, FileError, shorten
from gangline.spec.config.rules_line import Reader
from gangline.spec.config.site import Site
from gangline.spec.config.toml_text import MOST_BYTES, read_toml

T = TypeVar("T")
PROJECT_NAME = "project.name"
"""Key of a line that the default branch gives every commit: whose runs, data and models it may use."""
PROTECTED_TABLES = (PROJECT_NAME, "gate", "publish", "env.base", "data.holdout")
"""Keys of a line that say how a run is judged and what becomes of it: the protected branch's hold."""
LATER_DEFAULTS: dict[str, Any] = {
    "project.distributed": True, "project.outputs": [], "project.metrics": None, "project.path": [],
    "publish.files": [], "plan.transformer": None, "train.memory.gradient_sync": "auto", "gate.may_fail": [],
    "data.mix": [], "data.order": "auto", "data.window": 8, "data.parts": 1, "data.workers": "auto", "data.prefetch": 2,
    "publish.dataset": None, "gate.serve": None, "infer": to_plain(InferTable()),
    "train.parameter_server": None, "federated": None,
}  # fmt: skip
"""Keys and tables that lines have had since after the first runs, with their defaults."""
UNDIGESTED = ("search", "project.track")
"""What says nothing about one training: runs are named and keyed without it."""
HOW_TO_BEGIN = (
    "gangline init writes one for the scripts of a repository, gangline new NAME makes a repository that has one"
)
"""What works where there is no line.toml."""
_BARE_WORD = re.compile(r"(?!(true|false|inf|nan)$)[A-Za-z_][\w./:@-]*")


def load_line(path: Path) -> Line:
    """The line of `line.toml`, or of the folder that holds it; its lock is checked with it.

    Raises:
        FileError: A ConfigError with `.problems`, every one of them.
    """
    file = path / "line.toml" if path.is_dir() else path
    return load_line_text(_read(file), file=str(file), reader=_folder_reader(file.parent))


def load_line_text(
    text: str, *, file: str, rules: str | None = None, ruled: Sequence[str] = PROTECTED_TABLES,
    overrides: Sequence[str] = (), reader: Reader | None = None,
) -> Line:  # fmt: skip
    """The line of a text, for example out of a commit.

    Args:
        rules: Text of the line whose keys hold instead of this one's.
        ruled: Those keys, of `PROTECTED_TABLES`.
        overrides: `train.seed=2`; the value is TOML, a bare word is a string.
        reader: Opens other files of the same tree.

    Raises:
        FileError: A ConfigError with `.problems`, every one of them.
    """
    plain = read_toml(text, file=file)
    if rules is not None:
        _rule(plain, read_toml(rules, file=file), ruled)
    for override in overrides:
        _apply(plain, override)
    from gangline.spec.config.structure import build_line  # cattrs is not cheap to import, and only a file needs it

    line, problems = build_line(plain, reader)
    if line is None or problems:
        raise FileError(file, problems)
    return line


def load_site(path: Path | None = None, *, environ: Mapping[str, str]) -> Site:
    """The site of `path`, else of GANGLINE_SITE, else of the user's, else of the system's configuration folder.

    Without any file the defaults are a complete site.
    """
    file = _find("site", path, environ=environ)
    return Site() if file is None else load_text(Site, _read(file), file=str(file))


def load_fabric(path: Path | None = None, *, environ: Mapping[str, str]) -> FabricFile | None:
    """The network of `path`, else of GANGLINE_FABRIC, else of the same folders as the site; None: there is none."""
    file = _find("fabric", path, environ=environ)
    return None if file is None else load_text(FabricFile, _read(file), file=str(file))


def _find(name: str, path: Path | None, *, environ: Mapping[str, str]) -> Path | None:
    """The file that is read; one that was named has to be there."""
    variable = environ.get(f"GANGLINE_{name.upper()}")
    if named := path or (Path(variable) if variable else None):
        return named
    user = Path(environ.get("XDG_CONFIG_HOME") or Path(environ.get("HOME", "/nonexistent")) / ".config")
    paths = [folder / "gangline" / f"{name}.toml" for folder in (user, Path("/etc"))]
    return next((file for file in paths if file.is_file()), None)


def load_text(cls: type[T], text: str, *, file: str) -> T:
    """A whole `Site`, `FabricFile` or `MemberTable` of a text. Raises: FileError, with every problem."""
    from gangline.spec.config.structure import build_file

    found, problems = build_file(cls, read_toml(text, file=file))
    if found is None or problems:
        raise FileError(file, problems)
    return found


def effective(line: Line) -> dict[str, Any]:
    """Every key of a training with its value, defaults included, flat: `train.mesh.tp -> 1`; none of `UNDIGESTED`."""
    flat: dict[str, Any] = {}
    _flatten(_without_undigested(line), "", flat)
    return flat


def line_digest(line: Line) -> str:
    """SHA-256 of the effective line: a default written out changes nothing."""
    return digest(_digested(line))


def table_digests(line: Line) -> dict[str, str]:
    """Digest of each table, so that a stage is keyed by those it reads."""
    plain = _digested(line)
    return {name: digest(table) for name, table in plain.items()}


def _digested(line: Line) -> dict[str, Any]:
    """Keys of trainings with their values, but for `LATER_DEFAULTS`: runs keep the names that they had before."""
    plain = _without_undigested(line)
    for key, default in LATER_DEFAULTS.items():
        *tables, name = key.split(".")
        table = reduce(getitem, tables, plain)
        if table[name] == default:
            del table[name]
    return plain


def _without_undigested(line: Line) -> dict[str, Any]:
    """The line as plain data, without what says nothing about one training."""
    plain: dict[str, Any] = to_plain(line)
    for key in UNDIGESTED:
        *tables, name = key.split(".")
        del reduce(getitem, tables, plain)[name]
    return plain


def _rule(plain: dict[str, Any], rules: dict[str, Any], ruled: Sequence[str]) -> None:
    """Put the keys `ruled` of `rules` in place of those of `plain`; what is no table is left to the file's checks."""
    for rule in ruled:
        head, _, name = rule.partition(".")
        if not name:
            plain.pop(head, None)
            plain |= {head: rules[head]} if head in rules else {}
            continue
        table, source = plain.get(head, {}), rules.get(head, {})
        if isinstance(table, dict):
            others = {key: value for key, value in table.items() if key != name}
            plain[head] = others | ({name: source[name]} if name in source else {})


def _apply(plain: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    key = key.strip()
    if not equals or not grammar.LINE_KEY.fullmatch(key):
        raise _bad_override(override, "table.key=value", "train.seed=2 works")
    *path, name = key.split(".")
    table = plain
    for part in path:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise _bad_override(override, f"a table at {part}", "name a key of line.toml")
    table[name] = _value(override, text.strip())


def _value(override: str, text: str) -> Any:
    if _BARE_WORD.fullmatch(text):
        return text
    try:
        plain = read_toml(f"value = {text}", file="--set")
    except ConfigError as error:
        raise _bad_override(override, "a TOML value", 'quote strings: key="text"') from error
    if plain.keys() != {"value"}:
        raise _bad_override(override, "one TOML value", "give --set once a key")
    return plain["value"]


def _bad_override(override: str, wanted: str, works: str) -> FileError:
    return FileError("--set", [ConfigProblem("", wanted, shorten(override), works)])


def _flatten(value: Any, key: str, flat: dict[str, Any]) -> None:
    if isinstance(value, dict):
        for name, item in value.items():
            _flatten(item, f"{key}.{name}" if key else name, flat)
    else:
        flat[key] = value


def _read(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return opened.read(MOST_BYTES + 1).decode("utf-8")
    except OSError as error:
        works = HOW_TO_BEGIN if file.name == "line.toml" else "name another file"
        raise FileError(
            str(file), [ConfigProblem("", "a readable file", error.strerror or str(error), works)]
        ) from error
    except UnicodeDecodeError as error:
        raise FileError(
            str(file), [ConfigProblem("", "UTF-8 text", "other bytes", "save the file as UTF-8")]
        ) from error


def _folder_reader(folder: Path) -> Reader:
    def read_file(path: str) -> bytes | None:
        file = folder / path
        return file.read_bytes() if file.is_file() else None

    return read_file
