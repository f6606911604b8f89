"""`gangline run --profile A:B` leaves its request when the run has a name, and hides nothing from who watches."""

import pytest
from tests.report import records

from gangline.cli.commands.run import ProfileRequester
from gangline.spec.gang.profiling import ProfileRequest, request_key
from gangline.spec.record import StageInfo
from gangline.storage.open import open_store


class Heard:
    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        return lambda *arguments: self.calls.append((name, *arguments))


@pytest.fixture
def store(tmp_path):
    return open_store(f"file:{tmp_path / 'store'}")


def test_the_request_lies_there_before_anything_is_trained(store):
    heard = Heard()
    ProfileRequester(heard, store, (5, 7)).run_started(records.bare())
    request = ProfileRequest.from_json(store.get(request_key(records.bare().gang_prefix)).data)
    assert (request.first, request.last, request.ranks) == (5, 7, (0,))
    assert heard.calls == [("run_started", records.bare())]


def test_a_run_that_has_ended_is_asked_nothing(store):
    ProfileRequester(Heard(), store, (5, 7)).run_started(records.passed())
    assert store.get(request_key(records.passed().gang_prefix)) is None


def test_everything_else_is_handed_on(store):
    heard = Heard()
    wants = ProfileRequester(heard, store, (5, 7))
    wants.stage_started("train")
    wants.note("n")
    wants.stage_ended("train", StageInfo())
    wants.run_ended(records.passed())
    assert [name for name, *_ in heard.calls] == ["stage_started", "note", "stage_ended", "run_ended"]


@pytest.mark.parametrize("window", ["x", "5:3"])
def test_a_window_that_makes_no_sense_starts_no_run(gangline, window):
    result = gangline("run", "--profile", window)
    assert result.exit_code == 2
    assert "A:B" in str(result.exception)
