"""The index follows the store, also while that is away now and then."""

import json
import re
import time
from dataclasses import replace
from threading import Event

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.report import records
from tests.serve.world import record_of

from gangline.errors import IntegrityError, StorageError
from gangline.line.record.runs import mark_open, unmark_open
from gangline.serve.api.service import Service
from gangline.serve.context.service_context import StoreHealth
from gangline.serve.context.telemetry import Telemetry
from gangline.serve.database.types import RunFilter
from gangline.serve.runs.index_row import row_from_bytes, row_of
from gangline.serve.runs.indexer import Indexer, pause_after
from gangline.spec.record import STAGES, Record, StageInfo


class Failing:
    """A store that can be taken away."""

    def __init__(self, store):
        self._store, self.away, self.reads = store, False, 0
        self.url = store.url

    def __getattr__(self, name):
        def call(*arguments):
            if self.away:
                raise StorageError("the store is unplugged")
            self.reads += name == "get"
            return getattr(self._store, name)(*arguments)

        return call


@pytest.fixture
def store(still):
    return Failing(still.context.store)


@pytest.fixture
def indexer(still, store):
    return Indexer(store, still.context.database.runs, health=StoreHealth(), telemetry=Telemetry.of(still.context.site))


def run_changed(still, name, **run):
    made = record_of(still.context, "alpha", "open")
    record = replace(made, seq=5, run=replace(made.run, id=f"alpha-{made.commit.sha[:8]}-{name}", **run))
    still.context.store.put(f"{record.prefix}/record.json", record.to_json())
    return record


def test_full_pass_finds_every_record_and_reads_each_version_once(still, store, indexer):
    fresh = run_changed(still, "aaaaaa")
    assert indexer.full_pass() == 7
    assert still.context.database.runs.get(fresh.run.id) == row_of(fresh)
    reads = store.reads
    assert indexer.full_pass() == 7
    assert store.reads == reads
    time.sleep(0.01)
    still.context.store.put(f"{fresh.prefix}/record.json", replace(fresh, seq=6).to_json())
    indexer.full_pass()
    assert still.context.database.runs.get(fresh.run.id).seq == 6


def test_run_that_ends_is_seen_by_the_next_look_at_open_runs(still, indexer):
    record = run_changed(still, "aaaaaa")
    mark_open(still.context.store, record)
    indexer.open_pass()
    assert still.context.database.runs.get(record.run.id).verdict == "open"
    ended = replace(record, seq=6, run=replace(record.run, state="ended", verdict="passed", exit_code=0))
    still.context.store.put(f"{record.prefix}/record.json", ended.to_json())
    unmark_open(still.context.store, record)
    indexer.open_pass()
    assert still.context.database.runs.get(record.run.id).verdict == "passed"
    assert 'gangline_runs_total{project="alpha",verdict="passed"} 1.0' in indexer._telemetry.render()[1].decode()


def test_run_that_was_born_and_ended_between_two_looks_is_seen_when_its_driver_says_so(still, indexer):
    record = run_changed(still, "aaaaaa", state="ended", verdict="failed", exit_code=30)
    indexer.open_pass()
    assert still.context.database.runs.get(record.run.id) is None
    indexer.refresh("alpha", record.commit.sha, record.run.id)
    indexer.open_pass()
    assert still.context.database.runs.get(record.run.id).verdict == "failed"


def finals_of(indexer, run):
    lines = indexer._telemetry.render()[1].decode().splitlines()
    return [line for line in lines if f'run="{run}"' in line and not line.startswith("#")]


def ended_of(record, **run):
    return replace(record, seq=record.seq + 1, run=replace(record.run, state="ended", verdict="passed", **run))


def passed_runs(indexer):
    text = indexer._telemetry.render()[1].decode()
    return float(re.search(r'^gangline_runs_total\{project="alpha",verdict="passed"\} (\S+)$', text, re.M)[1])


def test_run_whose_whole_life_fell_between_two_looks_has_finals_and_counts_once(still, indexer):
    indexer._full()
    indexer.open_pass()
    before = passed_runs(indexer)
    short = ended_of(run_changed(still, "aaaaaa"))
    still.context.store.put(f"{short.prefix}/record.json", short.to_json())
    indexer.open_pass()
    assert finals_of(indexer, short.run.id) == []
    indexer.full_pass()
    assert finals_of(indexer, short.run.id)
    later = replace(short, seq=short.seq + 1, run=replace(short.run, reason="its report was drawn again"))
    still.context.store.put(f"{short.prefix}/record.json", later.to_json())
    indexer.refresh("alpha", short.commit.sha, short.run.id)
    indexer.open_pass()
    indexer.full_pass()
    assert passed_runs(indexer) == before + 1


def test_run_that_was_open_at_a_full_pass_alone_counts_when_the_next_one_finds_its_end(still, indexer):
    record = run_changed(still, "aaaaaa")
    indexer._full()
    ended = ended_of(record)
    still.context.store.put(f"{record.prefix}/record.json", ended.to_json())
    indexer.full_pass()
    assert passed_runs(indexer) == 1.0


def test_runs_that_ended_before_the_service_began_show_finals_and_count_in_no_total(still, indexer):
    old = ended_of(run_changed(still, "aaaaaa"))
    still.context.store.put(f"{old.prefix}/record.json", old.to_json())
    indexer._full()
    assert finals_of(indexer, old.run.id)
    again = replace(old, seq=old.seq + 1, run=replace(old.run, reason="a link was added to it long after"))
    still.context.store.put(f"{old.prefix}/record.json", again.to_json())
    indexer.full_pass()
    assert passed_runs(indexer) == 0.0


@pytest.mark.parametrize(("took", "pause"), [(0.01, 60.0), (6.0, 600.0), (120.0, 3600.0)])
def test_full_passes_take_a_hundredth_of_the_time_and_come_hourly_at_least(took, pause):
    assert pause_after(took) == pause


def test_damaged_record_is_left_out_and_the_others_are_not(still, indexer):
    still.context.store.put("runs/alpha/" + "0" * 40 + "/alpha-00000000-aaaaaa/record.json", b'{"run": 1')
    fresh = run_changed(still, "zzzzzz")
    indexer.full_pass()
    assert still.context.database.runs.get(fresh.run.id) is not None
    assert still.context.database.runs.get("alpha-00000000-aaaaaa") is None


@pytest.mark.row("N1")
def test_threads_outlive_a_store_that_goes_away_and_comes_back(still, store, indexer, monkeypatch):
    monkeypatch.setattr("gangline.serve.runs.indexer.OPEN_SECONDS", 0.02)
    monkeypatch.setattr("gangline.serve.runs.indexer.RETRY_SECONDS", 0.02)
    store.away = True
    indexer.start()
    wait_for(lambda: indexer._health.problem() == "the store is unplugged")
    store.away = False
    assert indexer.built.result(20) == 6
    wait_for(lambda: indexer._health.problem() is None)
    store.away = True
    wait_for(lambda: indexer._health.problem() is not None)
    indexer.close()


def test_every_open_run_is_attended_to(still, store):
    reported, seen = [], Event()

    def on_open(record):
        reported.append(record.run.id)
        seen.set()

    indexer = Indexer(store, still.context.database.runs, health=StoreHealth(), on_open=on_open)
    indexer.open_pass()
    assert seen.is_set()
    assert sorted(reported) == sorted(still.run(p, v) for p in ("alpha", "beta") for v in ("open", "fork"))


@pytest.mark.row("N1")
def test_service_without_its_store_answers_from_the_index_and_says_so(still):
    store = Failing(still.context.store)
    still.context = replace(still.context, store=store)
    run = still.run("alpha")
    with still.serving(), still.client() as client:
        store.away = True
        first = client.get(f"/api/v1/runs/{run}")
        assert (first.status_code, first.headers["retry-after"]) == (503, "5")
        assert "unplugged" in first.json()["detail"]
        list_refused = client.get("/api/v1/runs")
        assert (list_refused.status_code, len(list_refused.json()["runs"])) == (200, 6)
        assert "unplugged" in list_refused.headers["gangline-stale"]
        assert "The store is away" in client.get("/runs").text
        assert client.get("/readyz").status_code == 503
        assert client.get("/healthz").status_code == 200
        assert client.post("/api/v1/runs", json={"project": "alpha", "branch": "main"}).status_code == 202
        assert client.post(f"/api/v1/runs/{run}/cancel").status_code == 503
        page = client.get(f"/runs/{run}")
        assert (page.status_code, page.headers["content-type"]) == (503, "text/html; charset=utf-8")
        store.away = False
        still.context.health.answered()
        assert client.get(f"/api/v1/runs/{run}").status_code == 200


def test_store_that_is_known_to_be_away_is_not_asked_again(still):
    store = Failing(still.context.store)
    service = Service(replace(still.context, store=store))
    service.context.health.failed(StorageError("gone"))
    before = store.reads
    with pytest.raises(Exception, match="gone"):
        service.record(still.run("alpha"))
    assert store.reads == before


@pytest.mark.parametrize("name", ["passed", "refused", "failed", "bare", "large"])
def test_thin_row_is_the_row_of_the_whole_record(name):
    record = getattr(records, name)()
    assert (
        row_from_bytes(record.prefix, record.to_json()) == row_of(Record.from_json(record.to_json())) == row_of(record)
    )


states = st.sampled_from(["waiting", "running", "done", "taken", "skipped", "failed", "cancelled"])


infos = st.builds(StageInfo, state=states, seconds=st.none() | st.floats(0, 1e6))


@settings(max_examples=50)
@given(
    stages=st.dictionaries(st.sampled_from(STAGES), infos),
    dropped=st.sets(st.sampled_from(["metrics", "gates", "plan", "gang", "ledger"])),
)  # fmt: skip
def test_thin_row_agrees_on_any_stages_and_on_records_that_lack_parts(stages, dropped):
    empty = {"metrics": {}, "gates": (), "plan": None, "gang": None, "ledger": None}
    record = replace(records.refused(), stages=stages, **{name: empty[name] for name in dropped})
    assert row_from_bytes(record.prefix, record.to_json()) == row_of(Record.from_json(record.to_json()))


plain = st.recursive(st.none() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x))


@settings(max_examples=50)
@given(data=st.binary(max_size=200) | plain.map(lambda value: json.dumps(value).encode()))
def test_bytes_that_are_no_record_are_refused_in_one_way(data):
    with pytest.raises(IntegrityError):
        row_from_bytes("runs/a/b/c", data)


def test_filter_by_what_a_list_shows_is_answered_from_the_index(still, indexer):
    fresh = run_changed(still, "aaaaaa", state="ended", verdict="failed", exit_code=30)
    indexer.full_pass()
    found = still.context.database.runs.search(RunFilter(project="alpha", verdict="failed"))
    assert [row.run for row in found] == [fresh.run.id]


def wait_for(claim):
    deadline = time.monotonic() + 20
    while not claim():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_training_that_was_to_end_early_is_listed_as_such():
    whole = records.passed()
    cut = replace(whole, inputs=replace(whole.inputs, values=whole.inputs.values | {"train.stop_at": 60}))
    assert row_of(cut).plan == f"{whole.plan.name} to 60"
    assert row_from_bytes(cut.prefix, cut.to_json()) == row_of(cut)
