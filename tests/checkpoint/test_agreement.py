"""Two ranks, one of them in errors: both decide alike, nobody hangs, nothing half is listed."""

import pytest
from tests.checkpoint.forked import run_gang
from tests.checkpoint.gang import PREFIX
from tests.checkpoint.one_sided import open_replaced, open_two_steps

from gangline.checkpoint.format.manifest import list_checkpoints
from gangline.storage.folder.store import FolderStore


def steps(root):
    return [found.step for found in list_checkpoints(FolderStore(root), PREFIX)]


@pytest.mark.parametrize("rank", [0, 1])
def test_ranks_skip_the_same_saves_though_one_is_slow_to_write_and_tidy_up(ranks, tmp_path, rank):
    answers = ranks.run(layout="fsdp2", root=str(tmp_path), periodic=16, strikes=rank, slow_seconds=0.1, keep=1)
    assert answers[0] == answers[1]
    assert answers[0]["failed"] is None
    assert 0 < answers[0]["skipped"] < 16
    assert answers[0]["taken"].count(False) == answers[0]["skipped"]
    assert steps(tmp_path) == [17]


@pytest.mark.parametrize("rank", [0, 1])
def test_save_that_fails_on_one_rank_fails_on_both_and_the_next_works(ranks, tmp_path, rank):
    answers = ranks.run(layout="fsdp2", root=str(tmp_path), periodic=3, settle=True, strikes=rank, refusals=2)
    assert answers[0] == answers[1]
    assert answers[0]["ends"] == [[1, False], [2, False], [3, True], [4, True]]
    assert steps(tmp_path) == [4, 3]


def test_final_save_gives_up_on_all_ranks_together(ranks, tmp_path):
    answers = ranks.run(layout="ddp2", root=str(tmp_path), periodic=0, strikes=1, refusals=1000, patience=0.5)
    assert all(each["failed"].startswith("StorageError: checkpoint") for each in answers)
    assert steps(tmp_path) == []


def test_saving_that_fails_for_too_long_stops_all_ranks_together(ranks, tmp_path):
    answers = ranks.run(
        layout="ddp2", root=str(tmp_path), periodic=3, settle=True, strikes=1, refusals=1000, max_unsaved=0.0
    )
    assert all("no checkpoint could be written" in each["failed"] for each in answers)
    assert [each["taken"] for each in answers] == [[True], [True]]


@pytest.mark.parametrize("shard", [0, 1])
@pytest.mark.parametrize("layout", ["ddp2", "fsdp2"])
def test_shard_that_one_rank_finds_damaged_is_refused_by_all(run, tmp_path, shard, layout):
    first = run("fsdp2", root=str(tmp_path), steps=2, save=True)
    run("fsdp2", root=str(tmp_path), steps=1, save=True, generation=2)
    name = f"{PREFIX}/step-00000003/g0002-r{shard:05d}-0.safetensors"
    data = bytearray((tmp_path / name).read_bytes())
    data[-1] ^= 1
    (tmp_path / name).write_bytes(data)
    both = run(layout, root=str(tmp_path), seed=99)["both"]
    for answer in both:
        assert answer["step"] == 2
        assert answer["opened"] == first["digests"]
        assert [file for file, _ in answer["refused"]] == [name]


def test_all_refused_ends_both_ranks_alike(run, tmp_path):
    said = run("ddp2", root=str(tmp_path), steps=1, save=True)
    manifest = tmp_path / said["key"] / "manifest.json"
    manifest.write_bytes(manifest.read_bytes()[:-1])
    answers = run("fsdp2", root=str(tmp_path))["both"]
    assert [answer["error"] for answer in answers] == ["IntegrityError"] * 2
    assert all("none of 1 checkpoints" in answer["text"] for answer in answers)


@pytest.mark.parametrize("sees", [0, 1])
@pytest.mark.parametrize("name", ["manifest.json", "g0001-state.json"])
def test_papers_that_one_rank_finds_damaged_are_refused_by_all(tmp_path, sees, name):
    answers = run_gang(2, open_two_steps, str(tmp_path), sees, name)
    assert answers == [(1, 1.0, [f"{PREFIX}/step-00000002/{name}"])] * 2


def test_manifest_that_was_replaced_between_two_reads_is_refused_by_all(tmp_path):
    answers = run_gang(2, open_replaced, str(tmp_path), 1)
    assert answers == [(1, [f"{PREFIX}/step-00000002/manifest.json"])] * 2
