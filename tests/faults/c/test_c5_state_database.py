"""C5: the state database is damaged or gone. Damage is refused in a sentence; a new one gets runs and pushes again."""

import shutil
import sqlite3
from dataclasses import replace

import pytest
from tests.contracts.database.rows import order, row
from tests.serve.orders.yard import Yard

from gangline.errors import IntegrityError
from gangline.git.clones import Clones
from gangline.serve.context.service_context import StoreHealth
from gangline.serve.database.open import open_database
from gangline.serve.database.types import Principal, RunFilter
from gangline.serve.orders.schedules import Schedules
from gangline.serve.orders.sweep import Sweeper
from gangline.serve.runs.indexer import Indexer

pytestmark = pytest.mark.row("C5")
FILES = ("gangline.db", "gangline.db-wal")


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """Files of a service that was killed: part of the work in the database, part in its write-ahead log."""
    folder = tmp_path_factory.mktemp("killed")
    database = open_database(str(folder / "live.db"))
    fill(database, range(40))
    with sqlite3.connect(folder / "live.db") as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    other.close()
    fill(database, range(40, 60))
    for name in FILES:
        shutil.copyfile(folder / name.replace("gangline.db", "live.db"), folder / name)
    database.close()
    return folder


def fill(database, numbers):
    for n in numbers:
        database.deliveries.take_in(
            forge="ours", delivery=f"d{n}", body_digest=f"b{n}", order=order(f"refs/heads/b{n}"), now=float(n)
        )
        database.runs.put([row(n)])
        database.tokens.add(digest=f"{n:08x}" * 8, principal=Principal(name=f"p{n}", roles={}), expires=None, now=1.0)


@pytest.fixture
def copy(killed, tmp_path):
    for name in FILES:
        shutil.copyfile(killed / name, tmp_path / name)
    return tmp_path / "gangline.db"


def test_a_kill_alone_loses_nothing_and_is_not_damage(copy):
    database = open_database(str(copy))
    assert len(database.orders.list(states=["queued"], projects=None, limit=1000)) == 60
    assert len(database.runs.search(RunFilter(limit=1000))) == 60
    assert len(database.tokens.list()) == 60
    assert database.check() is None
    database.close()


def cut(path):
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def overwrite_pages(path):
    """An index of runs, which no start reads."""
    with sqlite3.connect(path) as database:
        (page,) = database.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'runs_words'").fetchone()
    database.close()
    data = bytearray(path.read_bytes())
    data[(page - 1) * 4096 : page * 4096] = b"\xa5" * 4096
    path.write_bytes(data)


def write_text(path):
    path.write_text("this is no database " * 1000)


@pytest.mark.parametrize("strike", [cut, overwrite_pages, write_text])
def test_a_damaged_file_is_refused_and_left_as_it_is(copy, strike):
    copy.with_name(f"{copy.name}-wal").unlink()  # what the log has would mend some pages
    strike(copy)
    damaged = copy.read_bytes()
    with pytest.raises(IntegrityError, match=r"gangline\.db is damaged: .*move the file away .* runs come from their"):
        open_database(str(copy))
    assert copy.read_bytes() == damaged


def test_damage_that_comes_while_it_runs_is_no_readiness(copy):
    database = open_database(str(copy))
    with sqlite3.connect(copy) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    other.close()
    overwrite_pages(copy)
    assert database.check().summary == "is damaged"
    database.close()


@pytest.mark.long
@pytest.mark.parametrize("first", ["index", "sweep"])
def test_a_deleted_database_is_made_again_from_records_and_heads(tmp_path, first):
    yard = Yard(tmp_path, forge=True)
    yard.push(branch="built")
    with yard.working():
        yard.wait(yard.order("built"))
    built, served = yard.records(), yard.context.database.runs.search(RunFilter())
    yard.push(branch="queued")
    yard.order("queued")
    yard.context.database.close()
    for name in FILES:
        (tmp_path / "home" / name).unlink(missing_ok=True)

    yard.context = replace(yard.context, database=open_database(str(tmp_path / "home" / "gangline.db")))
    index = Indexer(yard.context.store, yard.context.database.runs, health=StoreHealth())
    schedules = Schedules(yard.context.home / "schedules.json")
    sweep = Sweeper(yard.context, Clones(yard.context.home / "clones"), schedules)
    for each in (index.full_pass, sweep.sweep) if first == "index" else (sweep.sweep, index.full_pass):
        each()
    assert yard.context.database.runs.search(RunFilter()) == served
    with yard.working():
        yard.until(lambda: not yard.orders("queued", "driving"))
    new = [each for each in yard.records() if each not in built]
    assert [each.commit.branch for each in new] == ["queued"], "a push is lost, or one is built again"
    assert {each.run for each in yard.orders("done") if each.branch == "built"} <= {each.run.id for each in built}
    yard.close()
