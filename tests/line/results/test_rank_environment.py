"""The testimony of ranks, as a driver reads it: bounded, whatever was written; and what of it refuses a run."""

import json
from pathlib import Path

import pytest

from gangline.errors import IntegrityError
from gangline.line.results.rank_environment import (
    MOST_BYTES,
    MOST_GPUS,
    MOST_PACKAGES,
    MOST_PROGRAMS,
    read_rank_environment,
    work_tree_error,
)
from gangline.line.results.undeclared_reads import MOST_READS, obstacle
from gangline.spec.program_files import LoadedModule, RuntimeReport, UndeclaredRead
from gangline.storage.folder.store import FolderStore


@pytest.fixture
def store(tmp_path):
    return FolderStore(tmp_path / "store")


def put(store, *lines: object, rank: int = 0) -> None:
    text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    store.put(f"runs/x/ranks/ran-{rank}.jsonl", text.encode())


PYTHON = {"event": "python", "version": "3.12.1", "prefix": "/env"}


def test_lines_of_several_processes_and_ranks_become_one_testimony(store):
    read = {"event": "read", "path": "/data/labels.txt", "size_bytes": 5}
    first = {"event": "ran", "modules": {"code": 1}, "packages": {"numpy": "2.4.6"}, "reads": 1}
    put(store, PYTHON, read, read, first)
    put(
        store,
        PYTHON,
        {**first, "packages": {"numpy": "1.0", "yaml": "6"}, "modules": {"code": 3}, "last": True},
        rank=4,
    )
    reported = read_rank_environment(store, "runs/x")
    assert reported.packages == {"numpy": "2.4.6", "yaml": "6"}
    assert (reported.ranks, reported.modules, reported.num_reads, reported.is_whole) == ((0, 4), {"code": 3}, 1, True)
    assert reported.reads == (UndeclaredRead(path="/data/labels.txt", size_bytes=5),)


def test_of_several_environments_the_one_that_ran_code_of_the_commit_is_the_runs(store):
    """As with `conda run python train.py`: the first one only starts the other."""
    own, other = {**PYTHON, "own": True}, {**PYTHON, "version": "3.13.0", "prefix": "/opt/conda/envs/x", "own": False}
    started = {"event": "ran", "prefix": "/env", "modules": {"environment": 900}, "packages": {"numpy": "1.0"}}
    trained = {"event": "ran", "prefix": other["prefix"], "modules": {"code": 1, "environment": 5}}
    put(store, own, started, other, {**trained, "packages": {"numpy": "2.4.6"}})
    found = read_rank_environment(store, "runs/x")
    assert (found.python, found.prefix, found.packages) == ("3.13.0", "/opt/conda/envs/x", {"numpy": "2.4.6"})
    assert found.foreign == ("Python 3.13.0 of /opt/conda/envs/x",)
    tool = {"event": "ran", "prefix": other["prefix"], "modules": {"environment": 5}}
    put(store, own, other, tool, {**started, "modules": {"code": 1}})
    found = read_rank_environment(store, "runs/x")
    assert (found.python, found.foreign) == ("3.12.1", ()), "a tool that runs no code of the commit"


def test_no_report_is_not_an_empty_report(store):
    assert read_rank_environment(store, "runs/x") is None


def test_what_a_file_held_is_kept_and_a_second_process_that_found_another_one_is_noted(store):
    held = {"size_bytes": 5, "mtime_ns": 1, "ctime_ns": 2, "sha256": "a" * 64}
    same, other, large = ({"event": "read", "path": f"/data/{name}", **held} for name in ("same", "other", "large"))
    folder = {"event": "listed", "path": "/data/", **held}
    put(store, PYTHON, same, other, {**large, "sha256": ""}, folder, {"event": "ran", "reads": 3, "listed": 4})
    later = {"mtime_ns": 8, "ctime_ns": 9}
    put(
        store,
        PYTHON,
        {**same, **later},
        {**other, **later, "sha256": "b" * 64},
        {**large, **later, "sha256": ""},
        rank=1,
    )
    found = read_rank_environment(store, "runs/x")
    assert found.reads[0] == UndeclaredRead(path="/data/same", **held)
    assert [(each.path, each.changed) for each in found.reads] == [
        ("/data/same", False), ("/data/other", True), ("/data/large", True)
    ]  # fmt: skip
    assert (found.listed, found.num_listed) == ((UndeclaredRead(path="/data/", **held),), 4)


def test_a_list_of_several_processes_that_is_full_is_known_not_to_be_whole(store):
    for rank in (0, 1):
        reads = [{"event": "read", "path": f"/data/{rank}/{number}", "size_bytes": 1} for number in range(60)]
        put(
            store,
            PYTHON,
            *reads,
            {"event": "listed", "path": f"/data/{rank}/"},
            {"event": "ran", "reads": 60},
            rank=rank,
        )
    found = read_rank_environment(store, "runs/x")
    assert (len(found.reads), found.num_reads) == (MOST_READS, MOST_READS + 1)
    assert (len(found.listed), found.num_listed) == (2, 2)
    assert (
        obstacle(found)
        == "it read at least 101 files and 2 folders that the line does not declare: too many to be compared"
    )


def test_lies_and_nonsense_cost_no_more_than_themselves(store):
    put(
        store, PYTHON, "{", "[]", "null", {"event": "ran", "modules": 7, "packages": [1, [2], ["a", None]]},
        {"event": "read", "path": 7}, {"event": "read", "path": "/y", "mtime_ns": [], "sha256": "a"},
        {"event": "host", "name": "a\x1b[31mb"},
        {"event": "ran", "elsewhere": {"m": "f"}}, {"event": "started"}, {"event": "started", "program": "c\x1bat"},
        {"event": "read", "path": "/x" * 3000, "size_bytes": -1},
    )  # fmt: skip
    reported = read_rank_environment(store, "runs/x")
    assert (reported.hosts, reported.programs) == (("a [31mb",), ("c at",))
    assert reported.elsewhere == (LoadedModule(name="m", file="f"),)
    assert [(len(each.path), each.size_bytes, each.sha256) for each in reported.reads] == [(2, 0, ""), (400, 0, "")]
    assert reported.packages == {}


def test_what_is_kept_is_bounded_and_what_is_too_large_is_not_read(store):
    many = [{"event": "read", "path": f"/d/{n}", "size_bytes": 1} for n in range(500)]
    started = [{"event": "started", "program": f"{n}" * 200} for n in range(100)]
    packages = {f"p{n}": "1" for n in range(5000)}
    unseen = [{"event": "unseen", "why": str(n)} for n in range(100)]
    put(store, PYTHON, *many, *started, *unseen, {"event": "ran", "packages": packages, "reads": 500})
    reported = read_rank_environment(store, "runs/x")
    assert (len(reported.reads), reported.num_reads, len(reported.packages)) == (MOST_READS, 500, MOST_PACKAGES)
    assert (len(reported.programs), max(map(len, reported.programs))) == (MOST_PROGRAMS, 100)
    assert reported.unseen == ("0", "1", "2", "3", "4")
    store.put("runs/x/ranks/ran-0.jsonl", b" " * (MOST_BYTES + 1))
    with pytest.raises(IntegrityError, match="wanted at most"):
        read_rank_environment(store, "runs/x")


def test_a_module_of_the_work_tree_is_named_with_its_file_and_others_are_not_refused():
    ran = RuntimeReport(
        elsewhere=(LoadedModule(name="lib", file="/opt/lib.py"), LoadedModule(name="pkg", file="/work/src/pkg.py"))
    )
    error = work_tree_error(ran, Path("/work"), home=Path("/work/.gangline"))
    assert error.exit_code == 10
    assert "module pkg of /work/src/pkg.py" in str(error)
    kept = RuntimeReport(elsewhere=(LoadedModule(name="hub", file="/work/.gangline/home/model/hub.py"),))
    assert work_tree_error(kept, Path("/work"), home=Path("/work/.gangline")) is None
    assert (
        work_tree_error(RuntimeReport(elsewhere=ran.elsewhere[:1]), Path("/work"), home=Path("/work/.gangline")) is None
    )


def test_what_did_not_change_in_a_kept_home_since_the_run_began_was_left_there(store):
    home = Path("/w/.gangline/home")
    read = {"event": "read", "size_bytes": 5}
    others = [{**read, "path": f"/data/{number}", "ctime_ns": 1} for number in range(MOST_READS)]
    changed = {"old": 99_900_000_000, "new": 100_000_000_000, "lie": "200", "unknown": None}
    in_home = [{**read, "path": f"{home}/main/{name}", "ctime_ns": when} for name, when in changed.items()]
    put(store, PYTHON, *others[1:], *in_home)
    reads = read_rank_environment(store, "runs/x", homes=home, since=100.0).reads
    left = [each.path.rpartition("/")[2] for each in reads if each.left]
    assert left == ["old", "lie", "unknown"], "beyond the most that are reported, too"
    assert not any(each.left for each in read_rank_environment(store, "runs/x").reads), "a pod has no home that is kept"


def test_kinds_of_gpu_are_bounded_and_each_is_named_once(store):
    gpus = [{"event": "gpu", "name": f"GPU {number % 12}"} for number in range(24)]
    put(store, PYTHON, {"event": "gpu"}, {"event": "gpu", "name": "A\x1b"}, *gpus)
    found = read_rank_environment(store, "runs/x").gpus
    assert (len(found), found[0]) == (MOST_GPUS, "A")
