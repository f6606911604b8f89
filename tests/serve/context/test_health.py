"""Ready means that a delivery would be kept: on a disk that is full, read-only, slow, and fine again."""

import subprocess
import threading

import pytest
from tests.contracts.database.rows import order

from gangline.errors import StorageError
from gangline.serve.context import service_context
from gangline.serve.context.service_context import DatabaseReadiness
from gangline.serve.database.open import open_database
from gangline.serve.database.sqlite import check_free_space, problem_text
from gangline.serve.database.types import DatabaseProblem


@pytest.fixture
def disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip(f"needs leave to mount a tmpfs: {done.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def on_disk(disk):
    database = open_database(str(disk / "serve.db"))
    yield database
    database.close()


def fill(disk):
    with pytest.raises(OSError, match="No space left"):
        (disk / "filler").write_bytes(bytes(17 << 20))


def crowd(database):
    for number in range(1000):
        database.orders.add(order(f"refs/heads/{number}"), now=1.0)


def test_a_full_disk_is_not_ready_and_free_room_is(disk, on_disk):
    assert on_disk.check() is None
    fill(disk)
    assert on_disk.check().summary == "has a full disk"
    with pytest.raises(StorageError, match=r"serve\.db failed.*full"):
        crowd(on_disk)  # the first ones find room in the log: readiness asks for more than one
    (disk / "filler").unlink()
    assert on_disk.check() is None
    crowd(on_disk)
    assert not list(disk.glob("*.room"))


def test_a_read_only_disk_is_called_that(disk):
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    with pytest.raises(OSError, match="Read-only") as refused:
        check_free_space(disk / "serve.db")
    assert problem_text(refused.value) == "is read-only"


def test_the_service_names_a_full_disk_and_no_path(still, monkeypatch):
    full = DatabaseProblem(
        "has a full disk", f"the database {still.context.home}/serve.db failed: database or disk is full"
    )
    monkeypatch.setattr(still.context.database, "check", lambda: full)
    with still.serving(), still.client(None) as client:
        answer = client.get("/readyz")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert answer.json()["detail"] == "database has a full disk, store ok"
    assert str(still.context.home) not in answer.text


def test_probes_that_come_often_share_one_look(still):
    asked, now = [], [0.0]

    class Counted:
        def check(self):
            asked.append(1)
            return still.context.database.check()

    ready = DatabaseReadiness(Counted(), clock=lambda: now[0])
    assert [ready.problem() for _ in range(5)] == [None] * 5
    assert len(asked) == 1
    now[0] += service_context.FRESH_SECONDS
    assert ready.problem() is None
    assert len(asked) == 2


def test_a_disk_that_hangs_holds_up_one_probe_alone(monkeypatch):
    monkeypatch.setattr(service_context, "PROBE_TIMEOUT_SECONDS", 0.05)
    began, go_on = threading.Event(), threading.Event()

    class Hanging:
        def check(self):
            began.set()
            go_on.wait(60)

    ready = DatabaseReadiness(Hanging())
    first = threading.Thread(target=ready.problem)
    first.start()
    assert began.wait(60)
    assert ready.problem().summary == "does not answer"
    go_on.set()
    first.join(60)
    assert ready.problem() is None
