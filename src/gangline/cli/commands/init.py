"""`gangline init`: a line for a repository that is there already, guessed from its files."""

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from gangline.cli.options import JsonOption, PathArgument
from gangline.cli.output import print_json
from gangline.cli.terminal import say
from gangline.data.pointers import CONFIG
from gangline.errors import StorageError, UsageError
from gangline.git.repository import Repository
from gangline.init.declared_stages import FILES
from gangline.init.line_guess import LineGuess, guess_line, line_text
from gangline.init.package_locks import CONDA, is_lock_name
from gangline.init.training_script import SCRIPT_KINDS
from gangline.spec.config.load import load_line
from gangline.spec.config.problems import printable

LINE = "line.toml"
_MOST_FILES = 2_000
_MOST_BYTES = 1 << 20
_READ = (".py", ".ipynb", ".lock", ".txt", ".toml", ".dvc")


def command(
    path: PathArgument = Path(),
    *,
    script: Annotated[
        str | None, typer.Option("--script", help="The script that trains.", show_default="the likeliest")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a line.toml that is there.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the line, write nothing.")] = False,
    json: JsonOption = False,
) -> None:
    """Write the line.toml of a repository that has scripts of its own; none of its code runs."""
    repository, target = Repository.at(path), path / LINE
    if target.exists() and not (force or dry_run):
        raise UsageError(
            f"wanted a repository without {LINE}, found {target}; --force writes over it, gangline plan reads it"
        )
    tracked = repository.files()
    guess = guess_line(
        _files(repository, tracked, script),
        folder=path.resolve().name,
        script=script,
        has_gpu=Path("/dev/nvidiactl").exists(),
        branch=default.name if (default := repository.default_branch()) else None,
        leaves_out=partial(_leaves_out, repository),
        tracked=tracked,
        untracked=_untracked(repository),
        root=str(repository.root),
    )
    text = line_text(guess)
    if not dry_run:
        _write(target, text)
        load_line(target)
    following = _next(repository, path)
    if json:
        print_json(_document(guess, text, written=not dry_run, following=following))
        return
    page = _page(guess, text, target=target, dry_run=dry_run, dirty=_dirty(repository), following=following)
    say("\n".join(map(printable, page)))  # a name stays on its line, whatever is in it


def _files(repository: Repository, tracked: Iterable[str], script: str | None) -> Mapping[str, bytes]:
    """Tracked files to read, the shallow ones first; before the first commit, all files."""
    names = sorted(tracked, key=lambda name: (name.count("/"), name))
    wanted = (script, *FILES, *CONDA, CONFIG)
    return _contents(repository, [name for name in names if name.endswith(_READ) or name in wanted])


def _untracked(repository: Repository) -> Mapping[str, bytes]:
    """Files in the folder of the line that may be locks, and that no commit has."""
    names = repository.uncommitted()[1] if repository.has("HEAD") else ()
    return _contents(repository, [name for each in names if is_lock_name(name := each.removeprefix(repository.prefix))])


def _contents(repository: Repository, names: Sequence[str]) -> Mapping[str, bytes]:
    files = {name: repository.root / name for name in names[:_MOST_FILES]}
    return {
        name: file.read_bytes()
        for name, file in files.items()
        if file.is_file() and not file.is_symlink() and file.stat().st_size <= _MOST_BYTES
    }


def _leaves_out(repository: Repository, path: str) -> bool:
    """Git ignores it, as a file or a folder, and tracks nothing there."""
    ignores = repository.ignores(path) or repository.ignores(f"{path}/")
    return ignores and not any(name == path or name.startswith(f"{path}/") for name in repository.files())


def _write(target: Path, text: str) -> None:
    staged = target.with_name(f".{LINE}.{os.getpid()}")
    try:
        staged.write_text(text, "utf-8")
        staged.replace(target)
    except OSError as error:
        raise StorageError(f"wanted to write {target}, found: {error.strerror}; try --dry-run") from error


def _next(repository: Repository, path: Path) -> str:
    inside = "" if path == Path() else f"cd {shlex.quote(str(path))} && "
    adds = f"git add {LINE}" if repository.has("HEAD") else "git add --all"
    return f'{inside}{adds} && git commit -m "A line" && gangline run'


def _dirty(repository: Repository) -> tuple[str, ...]:
    if not repository.has("HEAD"):
        return ()
    changed = sorted({name for names in repository.uncommitted() for name in names} - {f"{repository.prefix}{LINE}"})
    if not changed:
        return ()
    return (f"not committed: {', '.join(changed[:4])}: commit or stash them: a run has what its commit has",)


def _page(
    guess: LineGuess, text: str, *, target: Path, dry_run: bool, dirty: tuple[str, ...], following: str
) -> list[str]:
    """Lines to show, one for each thing that is said."""
    seen, others = guess.script, ", ".join(f"{other.path} ({other.kind})" for other in guess.others)
    where = f", {seen.sign}" if seen.sign else ""
    lines = [f"script    {seen.path}: {SCRIPT_KINDS[seen.kind][0]}{where}"]
    lines += [f"          others: {others}; --script chooses"] if others else []
    lines += [f"{'would be' if dry_run else 'wrote':<10}{target}", *(f"          {line}" for line in text.splitlines())]
    lines += [f"{'?':<10}{key.name}: {key.origin}" for key in guess.keys if not key.is_known]
    lines += [f"note      {each}" for each in (*guess.notes, *dirty)]
    return [*lines, f"next      {following}"]


def _document(guess: LineGuess, text: str, *, written: bool, following: str) -> dict[str, object]:
    search = guess.script.search
    return {
        "script": {
            "path": guess.script.path,
            "kind": guess.script.kind,
            "line": search.line if search else 0,
            "shown_in": search.path if search else guess.script.path,
        },
        "others": [{"path": other.path, "kind": other.kind} for other in guess.others],
        "keys": [
            {"key": f"{key.table}.{key.name}", "value": key.value, "known": key.is_known, "why": key.why}
            for key in guess.keys
        ],
        "notes": list(guess.notes),
        "line": text,
        "written": written,
        "next": following,
    }
