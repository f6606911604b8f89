"""Versions of data sets on every store: writers of one version make one, and one writer at a time changes an alias."""

from hashlib import sha256
from threading import Barrier, Thread

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from gangline.data.versions import list_datasets, read_alias, resolve_dataset, set_alias, write_dataset
from gangline.errors import GateError, IntegrityError
from gangline.signing.keys import SigningKey, private_pem
from gangline.spec.dataset import Dataset, DatasetShard

WRITERS = 4
KEYS = [SigningKey(private_pem(ec.generate_private_key(ec.SECP256R1())), "test") for _ in range(WRITERS)]
TRUSTED = {key.key_id: key.public for key in KEYS}


def dataset(rows):
    shard = DatasetShard(path="a.arrow", sha256=sha256(b"%d" % rows).hexdigest(), size_bytes=10, rows=rows)
    return Dataset(name="wiki", num_samples=rows, schema=(("text", "string"),), shards=(shard,))


def race(call):
    """What each of `WRITERS` threads that call at once returns, or raises."""
    barrier, results = Barrier(WRITERS), []

    def work(number):
        barrier.wait()
        try:
            results.append(call(number))
        except Exception as error:
            results.append(error)

    threads = [Thread(target=work, args=(number,)) for number in range(WRITERS)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return results


@pytest.mark.row("DL8")
@pytest.mark.parametrize("again", range(10))
def test_writers_of_one_version_make_one_that_a_trusted_key_signed(store, again):
    made = dataset(again + 1)
    results = race(lambda number: write_dataset(store, made, KEYS[number], TRUSTED))
    assert sorted(results) == [False, False, False, True]
    assert [each.version for each in list_datasets(store, "wiki")] == [made.version]
    assert resolve_dataset(store, f"dataset:wiki@{made.version}", TRUSTED) == made


@pytest.mark.row("DL8")
def test_an_alias_that_several_writers_change_names_the_version_of_one_each_time(store):
    versions = [dataset(rows) for rows in range(1, WRITERS + 1)]
    for each in versions:
        write_dataset(store, each, KEYS[0], TRUSTED)
    generation = 0
    for turn in range(200 // WRITERS):
        wanted = [versions[(turn + number % 2) % WRITERS] for number in range(WRITERS)]
        results = race(lambda number, to=wanted: set_alias(store, to[number], "stable", KEYS[number], TRUSTED, who="a"))
        moved = [each for each in results if not isinstance(each, GateError)]
        made = sorted({each.generation for each in moved if each.generation > generation})
        assert len({each.nonce for each in moved if each.generation > generation}) == len(made)
        now = read_alias(store, "wiki", "stable", TRUSTED)
        assert made == list(range(generation + 1, now.generation + 1))
        assert now in moved
        generation = now.generation
    assert resolve_dataset(store, "dataset:wiki@stable", TRUSTED).version == now.version


def test_a_document_of_another_digest_is_not_written_over(store, monkeypatch):
    monkeypatch.setattr(Dataset, "version", property(lambda _: "00000000"))
    results = race(lambda number: write_dataset(store, dataset(number + 1), KEYS[number], TRUSTED))
    assert sum(each is True for each in results) == 1
    assert sum(isinstance(each, IntegrityError) for each in results) == WRITERS - 1
