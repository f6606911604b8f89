"""One object that is not the record of its key: refused by name, and nobody else notices."""

from dataclasses import replace

import pytest
from tests.line.records import SHA, record

from gangline.errors import IntegrityError, UsageError
from gangline.line.record.runs import find_run, list_runs, mark_open, open_runs
from gangline.line.record.store import MOST_READ_BYTES, RecordStore
from gangline.storage.folder.store import FolderStore

GOOD = record("cheap-9f31c2a0-aaaaaa")
BAD = record("cheap-9f31c2a0-bbbbbb")
OTHER = record("cheap-9f31c2a0-cccccc")
DAMAGED = {
    "no record": b'{"x":1}',
    "no JSON": b"\xff\x00",
    "the record of another run": OTHER.to_json(),
    "the record of another project": replace(BAD, run=replace(BAD.run, project="dear")).to_json(),
    "the record of another commit": replace(BAD, commit=replace(BAD.commit, sha="1" * 40)).to_json(),
    "larger than any record": BAD.to_json() + b" " * MOST_READ_BYTES,
}


@pytest.fixture(params=DAMAGED.values(), ids=DAMAGED.keys())
def store(tmp_path, request):
    found = FolderStore(tmp_path / "store")
    for each in (GOOD, BAD):
        RecordStore.of(found, each).create(each)
        mark_open(found, each)
    found.put(f"{BAD.prefix}/record.json", request.param)
    return found


def test_it_is_refused_where_it_is_read_and_where_it_would_be_changed(store):
    records = RecordStore.of(store, BAD)
    with pytest.raises(IntegrityError):
        records.read()
    with pytest.raises(IntegrityError):
        records.change(lambda each: replace(each, links={"forge": "https://git.example.org"}))
    with pytest.raises(IntegrityError):
        find_run(store, BAD.run.id)


def test_lists_and_open_runs_have_all_others_and_name_it(store):
    reported = []

    def hear(key, error):
        reported.append((key, str(error) != ""))

    assert [each.run.id for each in list_runs(store, on_refused=hear)] == [GOOD.run.id]
    assert [each.run.id for each in open_runs(store, on_refused=hear)] == [GOOD.run.id]
    assert reported == [(f"{BAD.prefix}/record.json", True)] * 2
    assert find_run(store, "cheap-9f31c2a0-a").run.id == GOOD.run.id


@pytest.mark.parametrize(
    ("marker", "content"),
    [
        (f"open/cheap/{BAD.run.id}", b"../../other"),
        (f"open/cheap/{BAD.run.id}", b"9" * 40),
        (f"open/cheap/{BAD.run.id}", b"a" * (1 << 20)),
        (f"open/dear/{BAD.run.id}", SHA.encode()),
        ("open/cheap/more/than/a-run", SHA.encode()),
        ("open/alone", SHA.encode()),
    ],
)
def test_a_marker_that_names_no_run_is_passed_over(tmp_path, marker, content):
    store = FolderStore(tmp_path / "store")
    RecordStore.of(store, GOOD).create(GOOD)
    mark_open(store, GOOD)
    store.put(marker, content)
    reported = []
    found = list(open_runs(store, on_refused=lambda key, _: reported.append(key)))
    assert ([each.run.id for each in found], reported) == ([GOOD.run.id], [marker])


def test_objects_next_to_runs_are_no_runs(tmp_path):
    store = FolderStore(tmp_path / "store")
    RecordStore.of(store, GOOD).create(GOOD)
    for key in ("runs/cheap/notes/of/mine/record.json", "runs/Cheap/9f/x/record.json", "runs/readme"):
        store.put(key, GOOD.to_json())
    assert [each.run.id for each in list_runs(store)] == [GOOD.run.id]
    with pytest.raises(UsageError):
        find_run(store, "mine")
