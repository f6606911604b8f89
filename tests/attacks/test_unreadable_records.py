"""C8: whatever lies where a record should be is put aside alone: told once, counted, shown; others are unaffected."""

import json
import os
import time
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs
from tests.line.records import record as small_record
from tests.report import records
from tests.serve.world import record_of
from tests.serve.world import world as made
from typer.testing import CliRunner

from gangline.cli.main import app as cli
from gangline.errors import IntegrityError
from gangline.line.record.runs import mark_open
from gangline.line.record.store import MOST_READ_BYTES, RecordStore
from gangline.serve.context import quarantine
from gangline.serve.context.service_context import StoreHealth
from gangline.serve.database.types import Principal, RunFilter
from gangline.serve.pages import render_runs
from gangline.serve.runs.index_row import row_from_bytes
from gangline.serve.runs.indexer import Indexer, is_lease_overdue
from gangline.spec.codec import canonical, from_json
from gangline.spec.record import Record
from gangline.storage.folder.store import FolderStore

pytestmark = pytest.mark.row("C8")
DEEP = b"[" * 100_000 + b"]" * 100_000


def reported(record, **fields):
    """Bytes of a record of which some parts are something else."""
    plain = json.loads(record.to_json())
    for path, value in fields.items():
        *tables, name = path.split("__")
        table = plain
        for each in tables:
            table = table[each]
        table[name] = value
    return json.dumps(plain).encode()


def with_bytes(record, value, place="inputs__values"):
    """`value` where anything may stand, as no JSON writer would write it."""
    return reported(record, **{place: {"a": "@"}}).replace(b'"@"', value)


def damages(record):
    return {
        "nothing": b"",
        "another document": b'{"x":1}',
        "no JSON": b"\xff\x00",
        "cut off": record.to_json()[:-1],
        "deep": DEEP,
        "deep where anything may stand": with_bytes(record, DEEP),
        "deeper than it could be written": with_bytes(record, b"[" * 600 + b"]" * 600),
        "not a number": reported(record, inputs__values={"a": float("nan")}),
        "infinity": reported(record, inputs__values={"a": float("inf")}),
        "a number that is infinity": with_bytes(record, b"1e999"),
        "a seq that no database holds": reported(record, seq=10**30),
        "a huge number": with_bytes(record, b"1" + b"0" * 5000),
        "a number that is no float": reported(record, stages={"build": {"seconds": 10**400}}),
        "half a character": record.to_json().replace(b'"subject":"', b'"subject":"\\ud800'),
        "half a character in bytes": record.to_json().replace(b'"subject":"', b'"subject":"\xed\xa0\x80'),
        "no time of birth": reported(record, run__created="yesterday"),
        "the year 99999": reported(record, run__created="99999-01-01T00:00:00Z"),
        "a text for a table": reported(record, stages="all"),
        "a list for a text": reported(record, commit__subject=["a"]),
        "no parts": reported(record, run={}),
        "a mesh of nothing": reported(record, plan=json.loads(canonical(replace(records.passed().plan)))
                                  | {"mesh": {"dp_shard": 0}}),
        "a subject of a megabyte": reported(record, commit__subject="x" * (MOST_READ_BYTES // 2)),
        "larger than any record": b" " * (MOST_READ_BYTES + 1),
        "a newer schema": reported(record, schema=99),
    }  # fmt: skip


NAMES = sorted(damages(small_record("cheap-9f31c2a0-aaaaaa")))


@pytest.fixture
def still(tmp_path):
    with made(tmp_path) as found:
        yield found


@pytest.fixture
def indexer(still):
    return Indexer(
        still.context.store, still.context.database.runs, health=StoreHealth(), telemetry=still.context.telemetry,
        quarantine=still.context.quarantine,
    )  # fmt: skip


def poison(workspace, data, name="zzzzzz", project="alpha"):
    """`data` where the record of an open run of `project` should be; its run id."""
    made = record_of(workspace, project, "open")
    bad = replace(made, run=replace(made.run, id=f"{project}-{made.commit.sha[:8]}-{name}"))
    workspace.store.put(f"{bad.prefix}/record.json", data(bad) if callable(data) else data)
    mark_open(workspace.store, bad)
    return bad


@pytest.mark.parametrize("name", NAMES)
def test_it_is_put_aside_and_the_others_are_seen(still, indexer, name):
    still.context.database.runs.put([])
    bad = poison(still.context, lambda record: damages(record)[name])
    late = record_of(still.context, "beta", "open")
    fresh = replace(late, seq=50, run=replace(late.run, created="2027-01-01T00:00:00Z"))
    still.context.store.put(f"{late.prefix}/record.json", fresh.to_json())
    with capture_logs() as logs:
        for _ in range(3):
            indexer.open_pass()
            indexer.full_pass()
    assert still.context.database.runs.get(late.run.id).seq == 50
    assert still.context.database.runs.get(bad.run.id) is None
    (refused,) = still.context.quarantine.list_refused(None)
    assert (refused.key, refused.project) == (f"{bad.prefix}/record.json", "alpha")
    assert 0 < len(refused.why) <= quarantine.MAX_REASON_CHARACTERS
    assert [each["key"] for each in logs if each["event"] == "record_refused"] == [refused.key]
    assert "gangline_records_refused 1.0" in still.context.telemetry.render()[1].decode()


def test_each_version_is_reported_once_and_a_mended_one_is_a_run_like_others(still, indexer):
    bad = poison(still.context, b"{}")
    key = f"{bad.prefix}/record.json"
    with capture_logs() as logs:
        for data in (b"{}", b'{"x": 1}', b'{"y": 1, "z": 2}'):
            still.context.store.put(key, data)
            for _ in range(3):
                indexer.open_pass()
                indexer.full_pass()
        still.context.store.put(key, bad.to_json())
        indexer.open_pass()
    assert len([each for each in logs if each["event"] == "record_refused"]) == 3
    assert still.context.quarantine.list_refused(None) == []
    assert still.context.database.runs.get(bad.run.id).state == "open"
    assert "gangline_records_refused 0.0" in still.context.telemetry.render()[1].decode()


def test_one_that_was_deleted_is_forgotten(still, indexer):
    bad = poison(still.context, b"{}")
    indexer.open_pass()
    assert len(still.context.quarantine.list_refused(None)) == 1
    still.context.store.delete(f"{bad.prefix}/record.json")
    still.context.store.delete(f"open/alpha/{bad.run.id}")
    indexer.full_pass()
    assert still.context.quarantine.list_refused(None) == []


def test_lists_show_it_to_those_who_may_read_the_project(still, indexer):
    bad = poison(still.context, b'{"x": "<script>"}')
    indexer.open_pass()
    key = f"{bad.prefix}/record.json"
    with still.serving():
        with still.client(("alpha", "reader")) as client:
            (shown,) = client.get("/api/v1/runs").json()["refused"]
            assert shown["key"] == key
            page = client.get("/runs").text
            assert "1 record could not be read" in page
            assert key in page
            assert "<script>" not in page
            assert client.get(f"/api/v1/runs/{bad.run.id}").status_code == 404
        with still.client(("beta", "reader")) as client:
            assert client.get("/api/v1/runs").json()["refused"] == []
            assert "could not be read" not in client.get("/runs").text


def test_a_run_whose_record_was_damaged_later_is_listed_as_it_was_and_says_why_when_asked(still, indexer):
    known = record_of(still.context, "alpha", "passed")
    still.context.store.put(f"{known.prefix}/record.json", b'{"x": 1}')
    indexer.full_pass()
    with still.serving(), still.client(("alpha", "maintainer")) as client:
        assert known.run.id in {row["run"] for row in client.get("/api/v1/runs").json()["runs"]}
        for path in ("", "/logs", "/events", "/artifacts/report"):
            answer = client.get(f"/api/v1/runs/{known.run.id}{path}")
            assert (answer.status_code, "cannot be read" in answer.text) == (409, True)
        assert client.get(f"/runs/{known.run.id}").status_code == 409
        assert client.post(f"/api/v1/runs/{known.run.id}/cancel").status_code == 409
        assert client.get(f"/runs/{still.run('alpha', 'open')}").status_code == 200


def test_a_lease_that_is_none_harms_no_other_run(still, indexer):
    bad = record_of(still.context, "alpha", "open")
    for data in (b"{}", b'{"expires":1.0,"holder":"a:b","token":1}', b"x" * 10_000_000, DEEP):
        still.context.store.put(f"{bad.prefix}/lease.json", data)
        indexer.open_pass()
    assert still.context.database.runs.get(still.run("beta", "open")) is not None
    with pytest.raises(IntegrityError):
        is_lease_overdue(still.context.store, bad, now=time.time())


def test_a_bug_that_one_record_finds_hinders_no_other(still):
    def on_open(record):
        if record.run.project == "alpha":
            raise ZeroDivisionError("a bug of ours")

    aside = quarantine.Quarantine()
    indexer = Indexer(
        still.context.store, still.context.database.runs, health=StoreHealth(), on_open=on_open, quarantine=aside
    )  # fmt: skip
    fresh = replace(record_of(still.context, "beta", "open"), seq=70)
    still.context.store.put(f"{fresh.prefix}/record.json", fresh.to_json())
    with capture_logs() as logs:
        indexer.open_pass()
        indexer.open_pass()
    assert still.context.database.runs.get(fresh.run.id).seq == 70
    assert {each.project for each in aside.list_refused(None)} == {"alpha"}
    assert len([each for each in logs if each["event"] == "record_refused"]) == 2


def test_no_more_than_a_thousand_are_remembered_and_reported(still):
    aside = quarantine.Quarantine()
    entry = still.context.store.head(f"{record_of(still.context, 'alpha', 'passed').prefix}/record.json")
    with capture_logs() as logs:
        for number in range(2 * quarantine.MAX_RECORDS):
            aside.refuse(f"runs/alpha/{number}/record.json", IntegrityError("no record"), entry)
    assert len(aside) == len(logs) == quarantine.MAX_RECORDS


def test_gangline_list_says_it_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("GANGLINE_SITE", str(tmp_path / "site.toml"))
    (tmp_path / "site.toml").write_text(f'[store]\nurl = "file:{tmp_path}/store"\n')
    store = FolderStore(tmp_path / "store")
    good, bad = small_record("cheap-9f31c2a0-aaaaaa"), small_record("cheap-9f31c2a0-bbbbbb")
    for each in (good, bad):
        RecordStore.of(store, each).create(each)
    store.put(f"{bad.prefix}/record.json", b'{"x":"\x1b[31m"}')
    found = CliRunner().invoke(cli, ["list", "--repo", str(tmp_path)], env=dict(os.environ))
    assert found.exit_code == 0, found.output
    assert good.run.id in found.stdout
    assert found.stderr.startswith(f"1 record could not be read: {bad.prefix}/record.json: ")
    assert found.stderr.count("\n") == 1
    assert "\x1b" not in found.stderr


# Whatever is almost a record

scalars = (
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats() | st.text(max_size=5)
    | st.sampled_from(["", "\0", "\ud800", "9" * 400, "2026-13-45T99:99:99Z", "../..", "yes", "ended"])
)  # fmt: skip
values = st.recursive(
    scalars, lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(max_size=3), x, max_size=3), max_leaves=6
)
WHOLE = [records.passed(), records.bare(), records.refused()]


def paths(plain, before=()):
    """Every place in a document."""
    for key, value in plain.items() if isinstance(plain, dict) else enumerate(plain):
        yield (*before, key)
        if isinstance(value, dict | list):
            yield from paths(value, (*before, key))


PATHS = [list(paths(json.loads(each.to_json()))) for each in WHOLE]


@st.composite
def almost_records(draw):
    """A record of which up to three places are gone, or something else."""
    which = draw(st.integers(0, len(WHOLE) - 1))
    plain = json.loads(WHOLE[which].to_json())
    for _ in range(draw(st.integers(1, 3))):
        *tables, last = draw(st.sampled_from(PATHS[which]))
        change = draw(st.just(None) | st.tuples(values))
        try:
            place = plain
            for each in tables:
                place = place[each]
            if change is None:
                del place[last]
            else:
                place[last] = change[0]
        except (KeyError, TypeError, IndexError):
            continue
    return WHOLE[which], json.dumps(plain).encode("utf-8", "surrogatepass")


@settings(max_examples=150)
@given(almost_records())
def test_almost_a_record_is_one_that_can_be_written_again_or_is_refused(found):
    _, data = found
    try:
        record = Record.from_json(data)
    except IntegrityError:
        return
    assert Record.from_json(record.to_json()) == record


@settings(max_examples=150)
@given(almost_records())
def test_a_row_of_almost_a_record_can_be_kept_and_drawn_or_is_refused(found):
    whole, data = found
    try:
        row = row_from_bytes(whole.prefix, data)
    except IntegrityError:
        return
    assert (row.project, row.commit, row.run) == (whole.run.project, whole.commit.sha, whole.run.id)
    assert from_json(type(row), canonical(row)) == row
    somebody = Principal(name="a", roles={"*": "reader"})
    page = render_runs([row, row], wanted=RunFilter(), orders=[], next_page=None, principal=somebody, now=1.8e9)
    assert row.run in page


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(almost_records(), min_size=1, max_size=10))
def test_an_index_with_almost_records_in_it_sees_all_others(still, indexer, found):
    workspace = still.context
    for number, (_, data) in enumerate(found):
        id_ = record_of(workspace, "alpha", "passed").run.id
        as_theirs = data.replace(b"bytegpt-9f31c2a0-k7q2mx", id_.encode()).replace(b'"bytegpt"', b'"alpha"')
        poison(workspace, as_theirs, name=f"aaaaa{'abcdefghijkl'[number]}")
    before = workspace.database.runs.get(still.run("beta", "open"))
    fresh = replace(record_of(workspace, "beta", "open"), seq=before.seq + 1)
    workspace.store.put(f"{fresh.prefix}/record.json", fresh.to_json())
    indexer.open_pass()
    indexer.full_pass()
    indexer.rebuild_finals()
    assert workspace.database.runs.get(fresh.run.id).seq == fresh.seq
