"""Layers by key: made once, made again byte for byte, halves of the killed forgotten."""

import json
import os

import pytest
from tests.cluster.images import recipes
from tests.cluster.images.archive import Entry


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("GANGLINE_TEST_CLUSTER", str(tmp_path))
    return tmp_path / "images"


def never():
    raise AssertionError("made twice")


def test_layer_that_is_noted_is_not_made_again(folder):
    made = recipes._layer("key", lambda: [Entry(name="file", data=b"1")])
    assert recipes._layer("key", never) == made


def test_tar_that_was_dropped_is_made_again_with_its_digest(folder):
    made = recipes._layer("key", lambda: [Entry(name="file", data=b"1")])
    made.path.unlink()
    noted = recipes._layer("key", lambda: [Entry(name="file", data=b"1")])
    assert not noted.path.exists()
    assert noted.make() == made
    assert noted.path.stat().st_size == made.size_bytes


def test_half_of_a_killed_process_is_forgotten_and_of_a_living_one_kept(folder):
    folder.mkdir()
    killed, living = folder / "key.4194304", folder / f"key.{os.getppid()}"  # above the largest id there is
    for each in (killed, living):
        each.write_bytes(b"half")
    recipes._layer("key", list)
    assert (killed.exists(), living.exists()) == (False, True)


def test_newest_code_is_kept(folder):
    for number in range(10):
        recipes._layer(f"code-{number}", lambda: [Entry(name="file", data=b"1")])
        os.utime(folder / f"code-{number}.json", (number, number))
    recipes._keep_newest("code-*", count=3)
    assert sorted(path.name for path in folder.glob("*.tar")) == ["code-7.tar", "code-8.tar", "code-9.tar"]
    assert all(json.loads(path.read_text())["digest"] for path in folder.glob("*.json"))
