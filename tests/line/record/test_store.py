"""The record under races, lost answers and older drivers, in a real folder store."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from tests.line.records import driven, new_sealer, record

from gangline.errors import CapacityError, IntegrityError, StorageError
from gangline.line.record import states
from gangline.line.record.store import MAX_BYTES, RecordStore, fit, thin_ranks
from gangline.spec.measurements import CurvePoint, RankRow
from gangline.spec.record import Driver
from gangline.storage.folder.store import FolderStore


@pytest.fixture
def records(tmp_path):
    return RecordStore.of(FolderStore(tmp_path), driven(), new_sealer())


def tell(text):
    return lambda each: states.add_event(each, now="t", stage="train", kind="k", text=text)


def test_sixteen_writers_lose_no_change(records):
    records.create(driven())

    def write(number):
        while True:
            try:
                return records.change(tell(f"event {number}"))
            except StorageError:  # eight others in turn were faster, which is said and not hidden
                continue

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(write, range(32)))
    found = records.read()
    assert sorted(event.text for event in found.events) == sorted(f"event {n}" for n in range(32))
    assert found.seq == 33


def test_of_racing_births_one_wins_and_all_see_it(records):
    with ThreadPoolExecutor(16) as pool:
        born = list(pool.map(lambda n: records.create(driven(created=str(n))), range(16)))
    assert len({each.nonce for each in born}) == 1
    assert records.read() == born[0]


def test_a_change_that_changes_nothing_writes_nothing(records):
    records.create(driven())
    records.change(lambda each: each)
    assert records.read().seq == 1


def test_an_older_driver_is_refused_at_the_write(records):
    records.create(driven())
    old, young = Driver(holder="old", token=1), Driver(holder="young", token=2)
    records.change(tell("a"), driver=old)
    records.change(tell("b"), driver=young)
    with pytest.raises(CapacityError, match="taken over by young"):
        records.change(tell("c"), driver=old)
    records.change(tell("d"))
    assert [event.text for event in records.read().events] == ["a", "b", "d"]
    assert records.read().run.driver == young


def test_two_holders_of_one_token_are_found_out(records):
    records.create(driven())
    records.change(tell("a"), driver=Driver(holder="one", token=1))
    with pytest.raises(IntegrityError, match="two drivers"):
        records.change(tell("b"), driver=Driver(holder="two", token=1))


class LosesAnswers:
    """A store whose compare-and-set is written, and then its answer lost."""

    def __init__(self, store):
        self.store, self.url, self.lost = store, store.url, 0

    def __getattr__(self, name):
        return getattr(self.store, name)

    def compare_and_set(self, key, data, expected):
        self.store.compare_and_set(key, data, expected)
        self.lost += 1
        raise StorageError("connection reset after the answer was sent")


def test_a_lost_answer_is_settled_by_reading_back(records):
    records.create(driven())
    lossy = LosesAnswers(records.store)
    RecordStore(lossy, records.prefix).change(tell("once"))
    assert lossy.lost == 1
    assert [event.text for event in records.read().events] == ["once"]


def test_a_write_that_never_arrived_is_an_error(records):
    records.create(driven())

    class Refuses(LosesAnswers):
        def compare_and_set(self, key, data, expected):
            raise StorageError("no space")

    with pytest.raises(StorageError, match="no space"):
        RecordStore(Refuses(records.store), records.prefix).change(tell("never"))
    assert records.read().events == ()


def test_a_record_that_is_gone_is_said_so(records):
    with pytest.raises(StorageError, match="was the run deleted"):
        records.change(tell("x"))


def large():
    rows = tuple(
        RankRow(rank=n, node=f"node-{n // 8}", phases=dict.fromkeys(("data", "forward", "backward", "wait"), 1.5))
        for n in range(256)
    )
    full = replace(record(), ranks=rows)
    points = tuple(CurvePoint(step=n, value=1.0, low=0.5, high=1.5) for n in range(64))
    full = replace(full, curve=replace(full.curve, points=points))
    for number in range(300):
        full = states.add_event(full, now="t" * 24, stage="train", kind="note", text=f"{number} " + "x" * 490)
    return replace(full, inputs=replace(full.inputs, values={f"model.k{n}": "v" * 300 for n in range(400)}))


def test_a_large_record_is_thinned_to_fit_and_keeps_its_last_words():
    fitted = fit(large())
    assert len(fitted.to_json()) <= MAX_BYTES
    assert fitted.events[-1].text.startswith("299 ")
    assert fit(fitted) == fitted


def test_what_cannot_be_thinned_is_refused():
    hopeless = replace(record(), inputs=replace(record().inputs, values={"model.table": "v" * MAX_BYTES}))
    with pytest.raises(IntegrityError, match="after thinning"):
        fit(hopeless)


def test_thinned_ranks_keep_the_slowest_and_the_fastest():
    rows = tuple(RankRow(rank=n, node="a", phases={}, step_seconds=float(n % 100)) for n in range(256))
    kept = thin_ranks(rows)
    assert len(kept) == 64
    seconds = sorted((row.step_seconds for row in rows), reverse=True)
    held = [row.step_seconds for row in kept]
    assert sorted(held, reverse=True)[:32] == seconds[:32]
    assert sorted(held)[:8] == seconds[::-1][:8]
    assert [row.rank for row in kept] == sorted(row.rank for row in kept)
