"""What stands already: the run that answers the question of an order, the commit that was built last."""

from itertools import count

from gangline.line.clones import Clones
from gangline.line.record_store import RecordStore
from gangline.serve.orders.commit_reader import Asked
from gangline.serve.orders.sources import Source
from gangline.serve.protocol import RunIndex
from gangline.serve.types import Order, RunFilter
from gangline.spec.record import Record, run_prefix
from gangline.storage.protocol import ObjectStore


def standing_run(store: ObjectStore, asked: Asked) -> Record | None:
    """The newest attempt at what is asked."""
    newest: Record | None = None
    for attempt in count(1):
        prefix = run_prefix(asked.project, asked.commit.sha, asked.run_id(attempt))
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
