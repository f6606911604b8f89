"""Orders and rows of runs for tests, and the calls that most of them begin with."""

from gangline.serve.database.types import Order, RunRow


def order(ref="refs/heads/main", project="alpha", **fields):
    return Order(project=project, ref=ref, forge="ours", repository=f"team/{project}", **fields)


def row(number=1, project="alpha", **fields):
    whole = {
        "run": f"{project}-{number:08x}-abcdef", "project": project, "commit": f"{number:040x}", "branch": "main",
        "subject": f"change {number}", "pull_request": None, "trust": "own", "state": "ended", "verdict": "passed",
        "reason": "every stage is done", "attempt": 1, "created": f"2026-01-01T00:00:{number:09.3f}Z", "plan": "ddp-2",
        "metric": "eval_loss", "value": 2.5, "base": None, "side": "same", "seconds": 60.0, "stage": "report",
        "waiting": None, "exit_code": 0, "seq": 10,
    }  # fmt: skip
    return RunRow(**(whole | fields))


def take_in(database, delivery="d1", body="b1", now=1000.0, forge="ours", **fields):
    return database.deliveries.take_in(forge=forge, delivery=delivery, body_digest=body, order=order(**fields), now=now)


def claim(database, now=2000.0, holder="me", lease_seconds=60.0):
    return database.orders.claim(holder=holder, now=now, lease_seconds=lease_seconds)


def queued(database):
    return database.orders.list(states=["queued"], projects=None, limit=100)


def make_older(execute, version):
    """The tables as they were at `version`, 1 or 2: a checksum in each row, and a number of commits."""
    for table in ("deliveries", "orders", "runs", "tokens"):
        execute(f"ALTER TABLE {table} ADD COLUMN seal TEXT NOT NULL DEFAULT 'x'")
    execute("INSERT INTO meta (name, value) VALUES ('generation', 7)")
    execute(f"UPDATE meta SET value = {version} WHERE name = 'version'")
