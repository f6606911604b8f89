"""Tables of the state database, by version. A newer version than ours is refused, an older one is brought up to ours.

What queries look at is in columns, the whole value as JSON in `body`.
"""

from typing import TYPE_CHECKING

from gangline.errors import ConfigError
from gangline.serve.database.types import DatabaseProblem

if TYPE_CHECKING:
    from gangline.serve.database.engine import DatabaseSession

_FIRST = (
    """
    CREATE TABLE deliveries (
        forge {text} NOT NULL, delivery {text} NOT NULL, body_digest {text} NOT NULL, seen {real} NOT NULL,
        seal {text} NOT NULL, PRIMARY KEY (forge, delivery))
    """,
    "CREATE UNIQUE INDEX deliveries_body ON deliveries (forge, body_digest)",
    "CREATE INDEX deliveries_seen ON deliveries (seen)",
    "{numbers_of_orders}",
    """
    CREATE TABLE orders (
        id {integer} PRIMARY KEY, project {text} NOT NULL, ref {text} NOT NULL, state {text} NOT NULL, run {text},
        not_before {real} NOT NULL, ready {real} NOT NULL, holder {text}, lease_until {real}, body {text} NOT NULL,
        seal {text} NOT NULL)
    """,
    "CREATE INDEX orders_ready ON orders (project, ready, id) WHERE state IN ('queued', 'parked')",
    "CREATE INDEX orders_leases ON orders (lease_until) WHERE state = 'driving'",
    "CREATE INDEX orders_state ON orders (state, id)",
    "CREATE INDEX orders_project ON orders (project, state, id)",
    "CREATE INDEX orders_ref ON orders (project, ref) WHERE state IN ('queued', 'parked', 'driving')",
    "CREATE INDEX orders_run ON orders (run) WHERE state = 'parked'",
    "CREATE TABLE turns (project {text} PRIMARY KEY, served {integer} NOT NULL)",
    "CREATE INDEX turns_served ON turns (served, project)",
    """
    CREATE TABLE runs (
        run {text} PRIMARY KEY, project {text} NOT NULL, commit_name {text} NOT NULL, branch {text},
        verdict {text} NOT NULL, pull_request {integer}, created {text} NOT NULL, words {text} NOT NULL,
        seq {integer} NOT NULL, body {text} NOT NULL, seal {text} NOT NULL)
    """,
    "CREATE INDEX runs_created ON runs (created, run)",
    "CREATE INDEX runs_words ON runs (created, run, words)",
    "CREATE INDEX runs_project ON runs (project, created, run)",
    "CREATE INDEX runs_verdict ON runs (project, verdict, created, run)",
    "CREATE INDEX runs_any_verdict ON runs (verdict, created, run)",
    "CREATE INDEX runs_branch ON runs (branch, created, run)",
    "CREATE INDEX runs_commit ON runs (commit_name)",
    "CREATE INDEX runs_pull_request ON runs (pull_request, created, run)",
    """
    CREATE TABLE tokens (
        digest {text} PRIMARY KEY, created {real} NOT NULL, expires {real}, body {text} NOT NULL, seal {text} NOT NULL)
    """,
)
_SECOND = ("DELETE FROM runs",)
"""Deletes rows made from unchecked records or without flags; a full pass creates them again."""
_THIRD = (
    *(f"ALTER TABLE {table} DROP COLUMN seal" for table in ("deliveries", "orders", "runs", "tokens")),
    "DELETE FROM meta WHERE name = 'generation'",
)
"""Drops the checksum of each row and the number of commits."""
MIGRATIONS: tuple[tuple[str, ...], ...] = (_FIRST, _SECOND, _THIRD)
"""Statements that lead from each version to the next, beginning at nothing."""
VERSION = len(MIGRATIONS)


def migrate(session: "DatabaseSession", types: dict[str, str]) -> None:
    """Make or migrate the tables.

    Args:
        session: Of a transaction that nothing else is in.
        types: The database's own words for text, real and integer, and how it numbers orders.

    Raises:
        ConfigError: A newer gangline made them.
    """
    session.lock("schema")
    session.execute(f"CREATE TABLE IF NOT EXISTS meta (name {types['text']} PRIMARY KEY, value {types['integer']})")
    version = read_version(session)
    if version > VERSION:
        raise ConfigError(
            f"the service's database has version {version}, this gangline knows {VERSION}: a newer gangline made it;"
            " install that one, or name another database as serve.database"
        )
    for statements in MIGRATIONS[version:]:
        for statement in statements:
            session.execute(statement.format_map(types))
    if version < VERSION:
        session.execute("DELETE FROM meta WHERE name = 'version'")
        session.execute("INSERT INTO meta (name, value) VALUES ('version', ?)", VERSION)
    session.execute(
        "INSERT INTO turns (project, served) SELECT DISTINCT project, 0 FROM orders"
        " WHERE state IN ('queued', 'parked', 'driving') ON CONFLICT DO NOTHING"
    )


def commit_probe(session: "DatabaseSession") -> int:
    """Write what is there already: the commit of it is as durable as any. The version."""
    session.execute("UPDATE meta SET value = value WHERE name = 'version'")
    return read_version(session)


def version_problem(found: int) -> DatabaseProblem | None:
    """Problem of tables of another version, which another gangline uses; None: they are of this one."""
    detail = f"the service's database has version {found}, wanted {VERSION}: another gangline uses it; run one of them"
    return None if found == VERSION else DatabaseProblem("is of another version", detail)


def read_version(session: "DatabaseSession") -> int:
    """0 where there are no tables yet."""
    rows = session.rows("SELECT value FROM meta WHERE name = 'version'")
    return int(rows[0][0]) if rows else 0
