"""Asking for a profile, waiting for it, and what a record lists of it."""

import threading
from dataclasses import replace

import pytest
from tests.report import records

from gangline.errors import StillRunning, UsageError
from gangline.line.results.profiles import (
    profile_artifacts,
    read_profiles,
    request_profile,
    trace_key,
    wait_for_profile,
)
from gangline.spec.gang.profiling import ProfileRequest, ProfileSummary, parse_window, request_key
from gangline.spec.record import StageInfo
from gangline.storage.open import open_store


@pytest.fixture
def store(tmp_path):
    return open_store(f"file:{tmp_path / 'store'}")


def training():
    record = records.passed()
    run = replace(record.run, state="open", verdict=None, exit_code=None)
    return replace(record, run=run, stages={"train": StageInfo(state="running")})


def answer(store, record, request, rank):
    found = ProfileSummary(
        rank=rank, first=request.first, last=request.last, word=request.word, device="cpu", seconds=1.0,
        trace=f"rank-{rank}.trace.json.gz",
    )  # fmt: skip
    prefix = f"{record.gang_prefix}/profiles/{request.name}"
    store.put(f"{prefix}/rank-{rank}.trace.json.gz", b"trace")
    store.put(f"{prefix}/rank-{rank}.json", found.to_json())


def test_a_request_lies_where_ranks_look_and_is_new_each_time(store):
    first = request_profile(store, training(), first=10, last=12, ranks=(1, 0, 1))
    assert ProfileRequest.from_json(store.get(request_key(training().gang_prefix)).data) == first
    assert (first.ranks, first.name) == ((0, 1), "10-12")
    assert request_profile(store, training(), first=10, last=12, ranks=(0,)).word != first.word


@pytest.mark.parametrize(
    ("record", "asked", "said"),
    [
        (records.passed(), {}, "does not train any more"),
        (training(), {"ranks": (2,)}, "2 ranks, 0 to 1"),
        (training(), {"first": 121, "last": 122}, "120 steps"),
        (replace(training(), plan=None), {}, "no plan yet"),
    ],
)
def test_what_no_rank_could_answer_is_refused(store, record, asked, said):
    with pytest.raises(UsageError, match=said):
        request_profile(store, record, **({"first": 1, "last": 2, "ranks": (0,)} | asked))


@pytest.mark.parametrize(("text", "window"), [("3:5", (3, 5)), ("7", (7, 7))])
def test_windows_are_read(text, window):
    assert parse_window(text) == window


@pytest.mark.parametrize("text", ["", "a:b", "5:3", "0:2", "1:", "1:101", "-1:2"])
def test_windows_that_make_no_sense_are_refused(text):
    with pytest.raises(UsageError, match="A:B"):
        parse_window(text)


def test_answers_are_awaited_and_those_to_an_older_question_do_not_count(store):
    record = training()
    store.put(f"{record.prefix}/record.json", record.to_json())
    answer(store, record, ProfileRequest(first=10, last=12, ranks=(0,), word="old"), 0)
    request = request_profile(store, record, first=10, last=12, ranks=(0, 1))
    reported = []
    later = threading.Timer(0.2, lambda: [answer(store, record, request, rank) for rank in (0, 1)])
    later.start()
    found = wait_for_profile(
        store, record, request, seconds=60, on_progress=lambda there, wanted: reported.append((there, wanted))
    )
    later.join()
    assert [each.rank for each in found.summaries] == [0, 1]
    assert reported[0] == (0, 2)
    assert reported[-1] == (2, 2)
    assert trace_key(found, found.summaries[1]) == f"{record.gang_prefix}/profiles/10-12/rank-1.trace.json.gz"


def test_a_training_that_ends_before_its_window_is_reported(store):
    record = training()
    request = request_profile(store, record, first=100, last=101, ranks=(0,))
    ended = records.passed()
    store.put(f"{record.prefix}/record.json", ended.to_json())
    with pytest.raises(UsageError, match="ended before the window"):
        wait_for_profile(store, record, request, seconds=60, on_progress=lambda *_: None)


def test_patience_ends_with_where_the_answer_will_be(store):
    record = training()
    request = request_profile(store, record, first=100, last=101, ranks=(0,))
    with pytest.raises(StillRunning, match="shows it later"):
        wait_for_profile(store, record, request, seconds=0, on_progress=lambda *_: None)


def test_windows_are_listed_in_order_and_belong_to_the_record(store):
    record = training()
    for first in (100, 9):
        answer(store, record, request_profile(store, record, first=first, last=first, ranks=(0,)), 0)
    assert [each.name for each in read_profiles(store, record)] == ["9-9", "100-100"]
    listed, left_out = profile_artifacts(store, record.gang_prefix)
    assert left_out == ()
    assert {each.kind for each in listed} == {"profile"}
    assert sorted(each.key.rsplit("/", 2)[1] for each in listed) == ["100-100", "100-100", "9-9", "9-9"]
    assert all(each.size_bytes == len(store.get(each.key).data) for each in listed)
