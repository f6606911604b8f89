"""A search killed before or after any durable effect: whoever goes on comes to the same trials and the same answer."""

import json
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.faults.instruments.crash_points import enumerate_crashes, keys_of
from tests.search.functions import PREFIX

from gangline.search.journal import StoreJournal
from gangline.spec.codec import digest
from gangline.storage.folder.store import FolderStore

PROGRAM = Path(__file__).with_name("drive_a_search.py")
OF_A_PROCESS = ("worker_id", "datetime_start", "datetime_complete")


def command(folder):
    return [sys.executable, str(PROGRAM), str(folder)]


def entries(folder):
    """The journal without times, names of processes, what each process says of the end, and costs: runs go on alone."""
    logs = StoreJournal(FolderStore(folder / "store"), f"{PREFIX}/journal").read_logs(0)
    plain = [{key: value for key, value in each.items() if key not in OF_A_PROCESS} for each in logs]
    return [each for each in plain if each["op_code"] != 2 and "cost" not in each.get("user_attr", {})]


def what_is_left(folder):
    answer = FolderStore(folder / "store").get(f"{PREFIX}/answer.json")
    runs = {each.stem: json.loads(each.read_text())["settings"] for each in (folder / "runs").glob("*.json")}
    return digest([entries(folder), json.loads(answer.data), runs])


def keys(folder):
    return keys_of(FolderStore(folder / "store"))


def trained_once(folder):
    begun = Counter((folder / "runs" / "begun").read_text().split())
    assert set(begun.values()) == {1}, begun


@pytest.fixture
def seed(request, tmp_path):
    (tmp_path / "seed").write_text(str(request.param))
    return request.param


@pytest.mark.long
@pytest.mark.parametrize("seed", [1], indirect=True)
def test_a_search_killed_at_some_effects_comes_to_the_same_answer(tmp_path, seed):
    """The birth of a trial, the beginning of its run, an entry of the journal; all points are `slow`."""
    points = ["begin ", "cancel ", 9]
    found = enumerate_crashes(
        command, digest=what_is_left, keys=keys, check=trained_once, points=points, scratch=tmp_path
    )
    assert found.num_crashes == 2 * len(points)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(5), indirect=True)
def test_a_search_killed_at_every_effect_comes_to_the_same_answer(tmp_path, seed):
    found = enumerate_crashes(
        command, digest=what_is_left, keys=keys, check=trained_once, recoveries=10, seed=seed, scratch=tmp_path
    )
    assert found.num_crashes == 2 * found.num_effects + 10
