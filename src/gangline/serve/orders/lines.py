"""What an order is about, read from its commit: the line, the run that asks its question, what changed since."""

import time
from itertools import count
from pathlib import Path

from gangline.errors import ConfigError
from gangline.line.clones import Clones
from gangline.line.fetching import git
from gangline.line.git import Repository
from gangline.line.question import Origin, ask
from gangline.line.record_store import RecordStore
from gangline.serve.orders.sources import Source
from gangline.serve.protocol import RunIndex
from gangline.serve.types import Order, RunFilter
from gangline.spec.line import Line
from gangline.spec.load import load_line_text
from gangline.spec.record import Record, run_prefix
from gangline.storage.protocol import ObjectStore


def read_line(place: Path, commit: str, overrides: tuple[str, ...] = ()) -> Line | None:
    """The effective line of a commit; None where it has no line.toml.

    Raises:
        ConfigError: It has one that does not hold.
    """
    repository = Repository.at(place)
    tree = repository.tree(commit)
    data = repository.file(tree, "line.toml")
    if data is None:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ConfigError("line.toml: wanted UTF-8 text, found other bytes; save the file as UTF-8") from error
    return load_line_text(text, file="line.toml", overrides=overrides, reader=lambda path: repository.file(tree, path))


def standing_run(store: ObjectStore, place: Path, commit: str, order: Order) -> Record | None:
    """The newest attempt at what `order` asks of `commit`.

    Raises:
        ConfigError: Its line does not hold.
    """
    origin = Origin(branch=order.branch, pull_request=order.pull_request, trust=order.trust)
    question = ask(place, commit=commit, overrides=order.overrides, strategy=None, origin=origin)
    newest: Record | None = None
    for attempt in count(1):
        prefix = run_prefix(question.line.project.name, commit, question.run_id(attempt))
        found = RecordStore(store, prefix).read()
        if found is None:
            break
        newest = found
    return newest


def changed_paths(
    source: Source, clones: Clones, index: RunIndex, order: Order, *, commit: str, branch: str | None
) -> list[str] | None:
    """Paths that differ from what was built last at this place; None: nothing was, or nobody can tell."""
    if order.pull_request is not None and source.forge is not None:
        return source.forge.changes(source.repository, order.pull_request)
    if branch is None:
        return None
    rows = index.search(RunFilter(project=order.project, branch=branch, limit=20))
    built = [row.commit for row in rows if row.verdict not in {"cancelled", "superseded"} and row.trust == "own"]
    if not built or built[0] == commit:
        return None
    return clones.changed(source.clone, built[0], commit)


def commit_age_seconds(place: Path, commit: str) -> float:
    """Since it was made, as it says itself."""
    done = git(place, "show", "--no-patch", "--format=%ct", "--end-of-options", commit)
    text = done.stdout.decode(errors="replace").strip()
    return time.time() - float(text) if done.returncode == 0 and text.isdecimal() else 0.0
