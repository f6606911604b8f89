"""Versions of data sets: written once and signed, named by aliases, removed if nothing names them."""

import json
from dataclasses import replace
from hashlib import sha256

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from gangline.data.versions import (
    alias_key,
    aliases_of,
    list_datasets,
    parse_reference,
    read_alias,
    read_dataset,
    remove_dataset,
    resolve_dataset,
    set_alias,
    signature_key,
    write_dataset,
)
from gangline.errors import ConfigError, GateError, IntegrityError, StorageError
from gangline.signing.keys import SigningKey, private_pem
from gangline.spec.data_source import DatasetUse
from gangline.spec.dataset import Dataset, DatasetOrigin, DatasetShard
from gangline.storage.folder.store import FolderStore


def new_key():
    return SigningKey(private_pem(ec.generate_private_key(ec.SECP256R1())), "test")


KEY, OTHER = new_key(), new_key()
TRUSTED = {KEY.key_id: KEY.public}


def dataset(name="wiki", rows=3):
    shard = DatasetShard(path="a.arrow", sha256=sha256(b"%d" % rows).hexdigest(), size_bytes=10, rows=rows)
    return Dataset(name=name, num_samples=rows, schema=(("text", "string"),), shards=(shard,), origin=DatasetOrigin())


def use_of(made, **changes):
    use = DatasetUse(
        name=made.name, version=made.version, digest=made.digest, num_samples=made.num_samples, size_bytes=10
    )
    return replace(use, **changes)


def write(store, made, key=KEY, trusted=TRUSTED):
    return write_dataset(store, made, key, trusted)


@pytest.fixture
def store(tmp_path):
    return FolderStore(tmp_path / "store")


def test_a_version_is_found_by_name_version_and_alias(store):
    made = dataset()
    assert write(store, made)
    set_alias(store, made, "latest", KEY, TRUSTED, who="a@b")
    set_alias(store, made, "stable", KEY, TRUSTED, who="a@b")
    for reference in ("dataset:wiki", f"dataset:wiki@{made.version}", "dataset:wiki@stable", "wiki@stable"):
        assert resolve_dataset(store, reference, TRUSTED) == made
    assert read_dataset(store, use_of(made)) == made
    assert [each.reference for each in list_datasets(store)] == [f"wiki@{made.version}"]
    assert [each.alias for each in aliases_of(store, "wiki", TRUSTED)] == ["latest", "stable"]


@pytest.mark.parametrize(
    "text",
    ["dataset:", "dataset:Wiki", "dataset:a/b", "dataset:../x", "dataset:wiki@", "dataset:wiki@1/2", "a@b@c", "w\n"],
)
def test_a_reference_of_another_form_is_refused(text):
    with pytest.raises(ConfigError, match=r"data\.shards\[0\]: wanted dataset:NAME"):
        parse_reference(text, r"data.shards[0]")


def test_a_version_that_is_missing_is_refused_with_the_newest_five(store):
    versions = []
    for rows in range(1, 8):
        versions.append(dataset(rows=rows))
        write(store, versions[-1])
    with pytest.raises(ConfigError, match="wanted version 00000000 of data set wiki, found no such") as refused:
        resolve_dataset(store, "dataset:wiki@00000000", TRUSTED)
    assert str(refused.value).count("wiki@") == 5
    assert versions[-1].version in str(refused.value)
    with pytest.raises(ConfigError, match="wanted alias stable"):
        resolve_dataset(store, "dataset:wiki@stable", TRUSTED)
    with pytest.raises(ConfigError, match="no data set of that name; gangline data list"):
        resolve_dataset(store, "dataset:code", TRUSTED)


def test_what_no_trusted_key_signed_is_refused(store):
    made = dataset()
    store.put_if_absent(made.key, made.to_json())
    with pytest.raises(IntegrityError, match="has no signature"):
        resolve_dataset(store, f"dataset:wiki@{made.version}", TRUSTED)
    write(store, made, OTHER, {OTHER.key_id: OTHER.public})
    with pytest.raises(IntegrityError, match=f"signed by key {OTHER.key_id}, trusted here: {KEY.key_id}"):
        resolve_dataset(store, f"dataset:wiki@{made.version}", TRUSTED)
    assert not write(store, made)  # the signature of a key that nobody trusts is replaced
    assert resolve_dataset(store, f"dataset:wiki@{made.version}", TRUSTED) == made


def test_a_signature_of_another_version_or_for_another_purpose_is_refused(store):
    made, other = dataset(), dataset(rows=4)
    write(store, made)
    write(store, other)
    store.put(signature_key("wiki", made.version), store.get(signature_key("wiki", other.version)).data)
    with pytest.raises(IntegrityError, match="that of another document"):
        resolve_dataset(store, f"dataset:wiki@{made.version}", TRUSTED)
    forged = {"digest": made.digest, "key_id": KEY.key_id, "signature": KEY.sign(made.to_json())}
    store.put(signature_key("wiki", made.version), json.dumps(forged).encode())
    with pytest.raises(IntegrityError, match="the signature is not that of key"):
        resolve_dataset(store, f"dataset:wiki@{made.version}", TRUSTED)


@pytest.mark.parametrize("lie", [{"num_samples": 4}, {"name": "code"}, {"format": "x"}, {"more": 1}, {"shards": []}])
def test_a_document_with_a_lie_is_refused(store, lie):
    made = dataset()
    write(store, made)
    data = json.dumps({**json.loads(made.to_json()), **lie}).encode()
    store.put(made.key, data)
    store.put(f"blobs/sha256/{made.digest}", data)
    for read in (
        lambda: resolve_dataset(store, f"dataset:wiki@{made.version}", TRUSTED),
        lambda: read_dataset(store, use_of(made)),
    ):
        with pytest.raises(IntegrityError):
            read()


def test_a_rank_reads_the_document_of_its_plan_and_no_other(store):
    made, other = dataset(), dataset(rows=4)
    write(store, made)
    store.delete(made.key)
    assert read_dataset(store, use_of(made)) == made  # a run that trains goes on
    store.put(f"blobs/sha256/{made.digest}", other.to_json())
    with pytest.raises(IntegrityError, match=f"wanted digest {made.digest[:12]}, found {other.digest[:12]}"):
        read_dataset(store, use_of(made))
    store.put(f"blobs/sha256/{made.digest}", made.to_json())
    with pytest.raises(IntegrityError, match="wanted the document of code@"):
        read_dataset(store, use_of(made, name="code"))
    store.delete(f"blobs/sha256/{made.digest}")
    with pytest.raises(StorageError, match="found no blob"):
        read_dataset(store, use_of(made))


def test_a_document_above_its_bound_is_not_read(store, monkeypatch):
    made = dataset()
    write(store, made)
    monkeypatch.setattr("gangline.data.versions.MOST_MANIFEST_BYTES", 100)
    with pytest.raises(IntegrityError, match="wanted at most 100 B"):
        resolve_dataset(store, f"dataset:wiki@{made.version}", TRUSTED)


def test_another_document_with_the_same_first_digits_is_refused(store, monkeypatch):
    made, other = dataset(), dataset(rows=4)
    monkeypatch.setattr(Dataset, "version", property(lambda self: "00000000"))
    write(store, made)
    with pytest.raises(IntegrityError, match="holds another data set"):
        write(store, other)


def test_an_alias_is_signed_and_names_its_own_place(store):
    made = dataset()
    write(store, made)
    set_alias(store, made, "stable", KEY, TRUSTED, who="a@b")
    data = store.get(alias_key("wiki", "stable")).data
    store.put(alias_key("wiki", "latest"), data)
    with pytest.raises(IntegrityError, match="signed by a trusted key"):
        read_alias(store, "wiki", "latest", TRUSTED)
    with pytest.raises(IntegrityError, match="signed by a trusted key"):
        read_alias(store, "wiki", "stable", {})
    store.put(alias_key("wiki", "stable"), data.replace(b'"who":"a@b"', b'"who":"c@d"'))
    with pytest.raises(IntegrityError, match="the signature is not that of key"):
        resolve_dataset(store, "dataset:wiki@stable", TRUSTED)


@pytest.mark.parametrize("alias", ["12345678", "abcdef01", "A", "a/b", ""])
def test_an_alias_that_could_be_a_version_or_a_path_is_refused(store, alias):
    with pytest.raises(ConfigError, match="wanted an alias like stable"):
        set_alias(store, dataset(), alias, KEY, TRUSTED, who="a@b")


def test_an_alias_that_was_not_written_is_an_error_of_the_store_and_one_that_was_is_none(store, monkeypatch):
    made = dataset()
    write(store, made)
    put = store.put_if_absent

    def lose(key, data):
        put(key, data)
        raise StorageError("the answer is lost")

    def fail(key, data):
        raise StorageError("away")

    monkeypatch.setattr(store, "put_if_absent", fail)
    with pytest.raises(StorageError, match="away"):
        set_alias(store, made, "stable", KEY, TRUSTED, who="a@b")
    monkeypatch.setattr(store, "put_if_absent", lose)
    assert set_alias(store, made, "stable", KEY, TRUSTED, who="a@b").generation == 1


def test_a_version_that_a_run_a_model_or_an_alias_names_is_not_removed(store):
    made, other = dataset(), dataset(rows=4)
    for each in (made, other):
        write(store, each)
        set_alias(store, each, "latest", KEY, TRUSTED, who="a@b")
    set_alias(store, made, "stable", KEY, TRUSTED, who="a@b")
    for users, named in (([], "alias stable"), (["run demo-1"], "run demo-1, alias stable")):
        with pytest.raises(GateError, match=f"wiki@{made.version} is named by {named}; it is not removed"):
            remove_dataset(store, "wiki", made.version, TRUSTED, users=users)
    assert resolve_dataset(store, "dataset:wiki@stable", TRUSTED) == made
    remove_dataset(store, "wiki", other.version, TRUSTED, users=[])
    assert [each.version for each in list_datasets(store)] == [made.version]
    with pytest.raises(ConfigError, match=f"its newest are wiki@{made.version}"):
        resolve_dataset(store, "dataset:wiki", TRUSTED)
