"""C5: the state database loses or flips bytes. It is found, what is whole is kept, and nothing is invented."""

import random
import shutil
import sqlite3

import pytest
from tests.contracts.database.rows import order, row

from gangline.serve.database.open import open_database
from gangline.serve.database.sqlite_integrity import CommitMark
from gangline.serve.database.types import Principal, RunFilter

pytestmark = pytest.mark.row("C5", full="200 flipped bits in each of two files")
FILES = ("gangline.db", "gangline.db-wal", "gangline.db.mark")


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """Files of a service that was killed: part of the work in the database, part in its write-ahead log."""
    folder = tmp_path_factory.mktemp("killed")
    database = open_database(str(folder / "live.db"))
    fill(database, range(40))
    database.orders._engine.write(lambda session: session.rows("SELECT 1"))
    with sqlite3.connect(folder / "live.db") as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    other.close()
    fill(database, range(40, 60))
    for name in FILES:
        source = folder / name.replace("gangline.db", "live.db")
        shutil.copyfile(source, folder / name)
    database.close()
    return folder


def fill(database, numbers):
    for n in numbers:
        database.deliveries.take_in(
            forge="ours", delivery=f"d{n}", body_digest=f"b{n}", order=order(f"refs/heads/b{n}"), now=float(n)
        )
        database.runs.put([row(n)])
        database.tokens.add(digest=f"{n:08x}" * 8, principal=Principal(name=f"p{n}", roles={}), expires=None, now=1.0)


def contents(database):
    return (
        {each.id: each for each in database.orders.list(states=["queued"], projects=None, limit=1000)},
        {each.run: each for each in database.runs.search(RunFilter(limit=1000))},
        {name: principal for name, principal, _ in database.tokens.list()},
    )


def reopened(folder, killed):
    """(contents, what was said) of a copy."""
    database = open_database(str(folder / "gangline.db"))
    try:
        return contents(database), database.restored
    finally:
        database.close()


def copy(killed, folder):
    folder.mkdir()
    for name in FILES:
        shutil.copyfile(killed / name, folder / name)
    return folder


def test_a_kill_alone_loses_nothing_and_is_not_damage(killed, tmp_path):
    found, said = reopened(copy(killed, tmp_path / "x"), killed)
    assert said is None
    assert [len(each) for each in found] == [60, 60, 60]


@pytest.mark.parametrize("count", [25, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["gangline.db", "gangline.db-wal"])
def test_no_flipped_byte_is_silent(killed, tmp_path, seed, name, count):
    whole, _ = reopened(copy(killed, tmp_path / "whole"), killed)
    draw = random.Random(f"{seed} {name}")
    reported = 0
    for number in range(count):
        folder = copy(killed, tmp_path / str(number))
        place = flip(folder / name, draw)
        found, said = reopened(folder, killed)
        check_invents_nothing(found, whole)
        assert found == whole or said is not None, f"byte {place} of {name} was flipped in silence"
        reported += said is not None
    assert reported  # many bytes of a file say nothing


def flip(path, draw):
    data = bytearray(path.read_bytes())
    place = draw.randrange(len(data))
    data[place] ^= 1 << draw.randrange(8)
    path.write_bytes(data)
    return place


def check_invents_nothing(found, whole):
    for part, original in zip(found, whole, strict=True):
        assert all(original.get(name) == value for name, value in part.items())


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.99])
@pytest.mark.parametrize("name", ["gangline.db", "gangline.db-wal"])
def test_no_torn_file_is_silent(killed, tmp_path, name, share):
    whole, _ = reopened(copy(killed, tmp_path / "whole"), killed)
    folder = copy(killed, tmp_path / "torn")
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(data[: int(share * len(data))])
    found, said = reopened(folder, killed)
    check_invents_nothing(found, whole)
    assert found == whole or "acknowledged commits are gone" in said or "lies at" in said


def test_what_was_damaged_is_put_aside_and_the_service_continues(killed, tmp_path):
    folder = copy(killed, tmp_path / "x")
    with sqlite3.connect(folder / "gangline.db") as other:
        other.execute("UPDATE orders SET ref = 'refs/heads/evil' WHERE id = 7")
    other.close()
    database = open_database(str(folder / "gangline.db"))
    assert "1 rows of orders changed" in database.restored
    assert "59 orders" in database.restored
    assert database.orders.get(7) is None
    assert database.check() is None
    assert list(folder.glob("gangline.db.damaged-*"))
    assert not database.deliveries.take_in(forge="ours", delivery="d8", body_digest="x", order=None, now=70.0)
    fresh = database.orders.add(order("refs/heads/new"), now=100.0)
    assert fresh.id == 61
    assert database.orders.claim(holder="me", now=200.0, lease_seconds=60.0) is not None
    database.close()
    again = open_database(str(folder / "gangline.db"))
    assert again.restored is None
    again.close()


def test_a_copy_of_yesterday_is_distinguished_from_today(tmp_path):
    database = open_database(str(tmp_path / "gangline.db"))
    fill(database, range(3))
    database.close()
    yesterday = (tmp_path / "gangline.db").read_bytes()
    database = open_database(str(tmp_path / "gangline.db"))
    fill(database, range(3, 6))
    database.close()
    (tmp_path / "gangline.db").write_bytes(yesterday)
    database = open_database(str(tmp_path / "gangline.db"))
    assert "acknowledged commits are gone" in database.restored
    assert len(contents(database)[0]) == 3
    database.close()


def test_a_damaged_mark_is_not_damage_of_the_database(killed, tmp_path):
    folder = copy(killed, tmp_path / "x")
    (folder / "gangline.db.mark").write_bytes(b"\xff\x00 999999")
    assert CommitMark(folder / "gangline.db").read() == 0
    assert reopened(folder, killed)[1] is None
