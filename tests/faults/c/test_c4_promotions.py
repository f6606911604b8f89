"""C4: many workers claim one version number and promote to one alias at once; one wins, the others get an error.

Judged by the history checker from what every worker saw, never from the end state alone. Slow: the full number.
"""

import random
import threading
from dataclasses import replace

import pytest
from tests.faults.instruments.history import Call, History, check
from tests.registry.passed_run import copy_of, template
from tests.registry.test_promote import point, second_version

from gangline.errors import GateError
from gangline.registry.publish import write_version
from gangline.registry.versions import read_alias, read_version
from gangline.spec.record import Record

pytestmark = pytest.mark.row("C4", full="25 promotions by 16 at once")
WORKERS = 16


class Recorded:
    """A store whose calls on versions and aliases go into a history."""

    def __init__(self, store, history, worker):
        self._store, self._client, self._values = store, history.client(store, worker), {}

    def __getattr__(self, name):
        return getattr(self._store, name)

    def get(self, key, start=0, size=None):
        if not key.startswith("models/") or start:
            return self._store.get(key, start, size)
        value, etag = self._client.read(key)
        self._values[etag] = value
        return self._store.get(key) if value is None else replace(self._store.get(key), data=value, etag=etag)

    def put_if_absent(self, key, data):
        if not key.startswith("models/"):
            return self._store.put_if_absent(key, data)
        return self._client.create(key, data)

    def compare_and_set(self, key, data, expected):
        if not key.startswith("models/"):
            return self._store.compare_and_set(key, data, expected)
        return self._client.swap(key, data, expected=self._values.get(expected), etag=expected)


def at_once(work):
    barrier, answers = threading.Barrier(WORKERS), [None] * WORKERS

    def run(number):
        barrier.wait()
        answers[number] = work(number)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


@pytest.fixture
def workspace(tmp_path, tmp_path_factory):
    return copy_of(template(tmp_path_factory, "published")[0], tmp_path / "root")


def test_of_sixteen_that_claim_one_number_with_mixed_digests_one_wins(workspace):
    history, first = History(), read_version(workspace.store, "bytegpt", 1)
    mixed = [replace(first, version=7, weights=f"{number % 4:064x}", run=f"run-{number}") for number in range(WORKERS)]
    won = at_once(lambda number: write_version(Recorded(workspace.store, history, number), mixed[number]))
    assert won.count(True) == 1
    assert read_version(workspace.store, "bytegpt", 7) == mixed[won.index(True)]
    assert check(history.calls) is None


@pytest.mark.parametrize("rounds", [2, pytest.param(25, marks=pytest.mark.slow)])
def test_of_sixteen_that_promote_at_once_one_wins_each_generation(workspace, seed, rounds):
    assert second_version(workspace) == 2
    chance = random.Random(seed)
    for _ in range(rounds):
        history = History()
        standing = workspace.store.get("models/bytegpt/aliases/production.json")
        if standing:
            history.add(Call(worker=-1, operation="put", key="models/bytegpt/aliases/production.json", begin=0.0,
                             end=0.0, value=standing.data))  # fmt: skip
        wanted = [chance.choice((1, 2)) for _ in range(WORKERS)]

        def promote(number, wanted=wanted, history=history):
            store = Recorded(workspace.store, history, number)
            try:
                return point(workspace, wanted[number], store=store, who=f"worker-{number}")
            except GateError as error:
                return str(error)

        answers = at_once(promote)
        swaps = [c for c in history.calls if c.operation in {"create", "swap"} and c.outcome == "ok"]
        won = {(a.generation, a.nonce) for a in answers if not isinstance(a, str)}
        generations = sorted({generation for generation, _ in won})
        assert len(won) == len(generations), "two promotions won one generation"
        assert len(swaps) <= len(generations)
        assert all("another promotion came first" in a for a in answers if isinstance(a, str))
        versions = [c for c in history.calls if "/aliases/" in c.key]
        assert check(versions) is None
        assert read_alias(workspace.store, "bytegpt", "production").generation == generations[-1]


def test_a_forks_run_is_never_promoted_no_matter_who_tries(workspace):
    place = f"{workspace.record.prefix}/record.json"
    record = Record.from_json(workspace.store.get(place).data)
    workspace.store.put(place, replace(record, commit=replace(record.commit, trust="fork")).to_json())

    def promote(_number):
        try:
            return point(workspace)
        except GateError:
            raise
        except Exception as error:
            return type(error).__name__

    assert set(at_once(promote)) == {"IntegrityError"}
    assert read_alias(workspace.store, "bytegpt", "production") is None
