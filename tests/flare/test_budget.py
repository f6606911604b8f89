"""Privacy that a member spent is on the disk before the first step, and nothing is refunded."""

import os
import subprocess
import sys

import pytest

from gangline.errors import GateError, IntegrityError, StorageError
from gangline.flare.member.budget import PrivacyLedger

RUN = {"epsilon": 4.0, "delta": 1e-5, "trainings": 3, "budget": 8.0}


@pytest.fixture
def ledger(tmp_path):
    return PrivacyLedger(tmp_path / "ledger.jsonl")


@pytest.mark.row("FL5")
def test_a_run_reserves_once_and_each_training_counts(ledger):
    for _ in range(3):
        ledger.begin_training("a", **RUN)
    assert ledger.spent() == 4.0
    with pytest.raises(GateError, match="covers 3 trainings"):
        ledger.begin_training("a", **RUN)
    ledger.begin_training("b", **RUN)
    with pytest.raises(GateError, match="found 0 left of 8"):
        ledger.begin_training("c", **RUN)
    assert ledger.spent() == 8.0


def test_what_was_reserved_does_not_change(ledger):
    ledger.begin_training("a", **RUN)
    for other in ({"epsilon": 1.0}, {"trainings": 9}, {"delta": 1e-3}):
        with pytest.raises(IntegrityError, match="as it reserved"):
            ledger.begin_training("a", **RUN | other)


@pytest.mark.row("FL5")
def test_a_crash_before_the_step_refunds_nothing(tmp_path):
    path = tmp_path / "ledger.jsonl"
    program = (
        "import os, sys, pathlib\n"
        "from gangline.flare.member.budget import PrivacyLedger\n"
        f"PrivacyLedger(pathlib.Path({str(path)!r})).begin_training('a', **{RUN})\n"
        "os.kill(os.getpid(), 9)\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -9
    assert PrivacyLedger(path).spent() == 4.0


@pytest.mark.row("FL5")
def test_the_line_is_synced_before_the_training_begins(ledger, monkeypatch):
    synced = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.fstat(handle).st_size) or real(handle))
    ledger.begin_training("a", **RUN)
    assert synced[0] == ledger._path.stat().st_size > 0


@pytest.mark.parametrize("torn", [b"{", b'{"run":"a"', b'{"delta":0.0,"epsilon":4.0,"run":"a","trainings":3}'])
def test_a_torn_last_line_was_never_synced_and_is_cut_off(ledger, torn):
    ledger.begin_training("a", **RUN)
    with ledger._path.open("ab") as file:
        file.write(torn)
    assert ledger.spent() == 4.0
    ledger.begin_training("b", **RUN)
    assert ledger.spent() == 8.0


def test_a_changed_line_stops_every_private_run(ledger):
    ledger.begin_training("a", **RUN)
    ledger._path.write_bytes(b"nothing was spent\n")
    with pytest.raises(IntegrityError, match="until its administrator has looked"):
        ledger.begin_training("b", **RUN)


def test_a_full_disk_begins_nothing_and_leaves_no_half_line(ledger, monkeypatch):
    ledger.begin_training("a", **RUN)
    before, real = ledger._path.read_bytes(), os.write

    def full(handle, data):
        real(handle, data[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(StorageError, match="No space left"):
        ledger.begin_training("b", **RUN)
    monkeypatch.undo()
    assert ledger._path.read_bytes() == before
    assert ledger.spent() == 4.0


def test_a_file_that_may_not_grow_begins_nothing(tmp_path):
    path = tmp_path / "ledger.jsonl"
    PrivacyLedger(path).begin_training("a", **RUN)
    before = path.read_bytes()
    program = (
        "import pathlib, resource, signal\n"
        "from gangline.flare.member.budget import PrivacyLedger\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({len(before) + 20},) * 2)\n"
        f"PrivacyLedger(pathlib.Path({str(path)!r})).begin_training('b', **{RUN})\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert "StorageError" in done.stderr
    assert path.read_bytes() == before
