"""A row a run, as its record last said, for lists and look-ups: pages by key, never by counting rows off."""

from collections.abc import Sequence
from heapq import merge
from itertools import islice

from gangline.serve.database.engine import DatabaseEngine, DatabaseSession, Row, placeholders
from gangline.serve.database.types import RunFilter, RunRow
from gangline.spec.codec import canonical, from_json

_NAMES = ("run", "project", "commit_name", "branch", "verdict", "pull_request", "created", "words", "seq", "body")
_COLUMNS = ", ".join(_NAMES)
_PUT = (
    f"INSERT INTO runs ({_COLUMNS}) VALUES ({placeholders(_NAMES)}) ON CONFLICT (run) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in _NAMES[1:])
    + " WHERE excluded.seq >= runs.seq"
)
_LAST = "\U0010ffff"


class RunIndex:
    """Rows of runs. Records stay the truth: a lost index is built again from them."""

    def __init__(self, engine: DatabaseEngine) -> None:
        self._engine = engine

    def put(self, rows: Sequence[RunRow]) -> None:
        """Insert or renew; an older `seq` changes nothing."""

        def work(session: DatabaseSession) -> None:
            for row in rows:
                session.execute(_PUT, *_values(row))

        if rows:
            self._engine.write(work)

    def search(self, wanted: RunFilter) -> list[RunRow]:
        """Newest first: one walk down an index for each project that may be read, merged, so that none is a scan."""
        found = self._engine.read(lambda session: [_walk(session, wanted, project) for project in _projects(wanted)])
        newest = merge(*found, key=lambda row: (row[6], row[0]), reverse=True)
        return [from_json(RunRow, row[-1]) for row in islice(newest, wanted.limit)]

    def get(self, run: str) -> RunRow | None:
        sql = f"SELECT {_COLUMNS} FROM runs WHERE run = ?"
        rows = self._engine.read(lambda session: session.rows(sql, run))
        return from_json(RunRow, rows[0][-1]) if rows else None

    def counts(self, projects: Sequence[str] | None) -> dict[tuple[str, str], int]:
        """Runs by (project, verdict)."""
        if projects is not None and not projects:
            return {}
        chosen = f"WHERE project IN ({placeholders(projects)})" if projects else ""
        sql = f"SELECT project, verdict, COUNT(*) FROM runs {chosen} GROUP BY project, verdict"
        rows = self._engine.read(lambda session: session.rows(sql, *(projects or ())))
        return {(str(project), str(verdict)): int(count) for project, verdict, count in rows}


def _projects(wanted: RunFilter) -> tuple[str | None, ...]:
    if wanted.projects is None:
        return (wanted.project,)
    if wanted.project is None:
        return tuple(dict.fromkeys(wanted.projects))
    return (wanted.project,) if wanted.project in wanted.projects else ()


def _walk(session: DatabaseSession, wanted: RunFilter, project: str | None) -> Sequence[Row]:
    conditions, values = _conditions(wanted, project)
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    newest = f"FROM runs {where} ORDER BY created DESC, run DESC LIMIT ?"
    if wanted.text is None:
        return session.rows(f"SELECT {_COLUMNS} {newest}", *values, wanted.limit)
    names = [row[0] for row in session.rows(f"SELECT run {newest}", *values, wanted.limit)]  # a walk of an index alone
    sql = f"SELECT {_COLUMNS} FROM runs WHERE run IN ({placeholders(names)}) ORDER BY created DESC, run DESC"
    return session.rows(sql, *names) if names else []


def _conditions(wanted: RunFilter, project: str | None) -> tuple[list[str], list[object]]:
    parts: list[tuple[str, tuple[object, ...]]] = []
    if project is not None:
        parts.append(("project = ?", (project,)))
    if wanted.branch is not None:
        parts.append(("branch = ?", (_text(wanted.branch),)))
    if wanted.verdict is not None:
        parts.append(("verdict = ?", (wanted.verdict,)))
    if wanted.pull_request is not None:
        parts.append(("pull_request = ?", (wanted.pull_request,)))
    if wanted.commit is not None:
        parts.append(("commit_name >= ? AND commit_name < ?", (wanted.commit, wanted.commit + _LAST)))
    if wanted.text is not None:
        escaped = _text(wanted.text).casefold().replace("!", "!!").replace("%", "!%").replace("_", "!_")
        parts.append(("words LIKE ? ESCAPE '!'", (f"%{escaped}%",)))
    if wanted.before is not None:
        parts.append(("(created, run) < (?, ?)", wanted.before))
    return [sql for sql, _ in parts], [value for _, values in parts for value in values]


def _values(row: RunRow) -> tuple[object, ...]:
    branch = None if row.branch is None else _text(row.branch)
    words = _text(f"{row.subject}\n{row.branch or ''}\n{row.run}").casefold()
    return (
        row.run, row.project, row.commit, branch, row.verdict, row.pull_request, row.created, words, row.seq,
        canonical(row).decode(),
    )  # fmt: skip


def _text(text: str) -> str:
    """Text that both databases can hold: PostgreSQL has no NUL in a text."""
    return text.replace("\0", "\ufffd")
