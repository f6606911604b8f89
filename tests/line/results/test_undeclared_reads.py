"""Files that the line does not declare: what is said of them, and when a training that read them is not taken over."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from tests.line.records import record

from gangline.line.results.undeclared_reads import (
    MOST_LISTED,
    MOST_READS,
    changed_since,
    is_same_now,
    obstacle,
    reuse_text,
    undeclared_reads_text,
    with_changed_files,
    with_reads_of,
)
from gangline.spec.program_files import RuntimeReport, UndeclaredRead
from gangline.train.startup.contents import MOST_BYTES, contents_of


def test_reads_are_said_with_what_declares_them():
    ran = RuntimeReport(reads=(UndeclaredRead(path="/work/data/labels.txt", size_bytes=5),), num_reads=4)
    said = undeclared_reads_text(ran, Path("/work"))
    assert said.startswith("read 4 files that the line does not declare: data/labels.txt, ...; data.text")
    assert undeclared_reads_text(RuntimeReport()) == ""
    many = tuple(UndeclaredRead(path=f"/d/{number}", size_bytes=1) for number in range(MOST_READS))
    assert undeclared_reads_text(RuntimeReport(reads=many, num_reads=MOST_READS)).startswith("read at least 100 files")
    hub = RuntimeReport(reads=(UndeclaredRead(path="/h/.cache/huggingface/hub/x", size_bytes=5),), num_reads=1)
    assert "this includes downloads of a hub" in undeclared_reads_text(hub)
    left = RuntimeReport(reads=(UndeclaredRead(path="/w/t.json", size_bytes=5, left=True),), num_reads=1)
    assert undeclared_reads_text(left).endswith("; this includes what an earlier run left in .gangline/home")


def read_of(path: Path | str) -> UndeclaredRead:
    """As a rank reports it."""
    return UndeclaredRead(path=str(path), **contents_of(str(path))._asdict())


def report_of(*paths: Path | str, **fields) -> RuntimeReport:
    reads, listed = (
        tuple(read_of(each) for each in paths if str(each).endswith("/") is slash) for slash in (False, True)
    )
    counts = {"num_reads": len(reads), "num_listed": len(listed)}
    return RuntimeReport(**{"reads": reads, "listed": listed, "ranks": (0,), "is_whole": True, **counts, **fields})


@pytest.fixture
def labels(tmp_path):
    path = tmp_path / "data" / "labels.txt"
    path.parent.mkdir()
    path.write_text("1")
    return path


def test_files_and_folders_that_are_as_they_were_let_a_training_be_taken_over(labels):
    assert obstacle(report_of(labels, f"{labels.parent}/")) == ""
    assert obstacle(RuntimeReport()) == obstacle(None) == ""


def _flipped(path: Path) -> None:
    """Other content of the same size, with the old time of change of the content."""
    status = path.stat()
    path.write_text("5")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize(
    "change",
    [_flipped, Path.unlink, lambda path: path.write_text("12"), lambda path: path.replace(path.with_name("old"))],
    ids=["flipped", "deleted", "grown", "renamed"],
)
def test_a_file_that_is_another_one_now_is_a_reason_to_train_again_and_is_named(labels, change):
    ran = report_of(labels)
    change(labels)
    why = f"it read {labels}, which the line does not declare and which is not the same here and now"
    made = replace(record(), ran=ran)
    assert (obstacle(ran), changed_since(made)) == (why, (str(labels),))
    assert changed_since(replace(made, commit=replace(made.commit, trust="fork"))) == (), (
        "what a fork names is not opened"
    )


def test_a_file_that_was_touched_has_its_content_still_where_a_digest_says_so(labels):
    small, large = report_of(labels), report_of(labels)
    large = replace(large, reads=tuple(replace(each, sha256="") for each in large.reads))
    os.utime(labels)
    assert obstacle(small) == ""
    assert "is not the same here and now" in obstacle(large)


def test_a_large_file_is_known_by_the_time_that_no_program_can_set(tmp_path):
    path = tmp_path / "tokens.bin"
    with path.open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    ran = report_of(path)
    assert (ran.reads[0].sha256, obstacle(ran)) == ("", "")
    status = path.stat()
    with path.open("r+b") as file:
        file.write(b"1")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert "is not the same here and now" in obstacle(ran)


def test_a_file_that_was_added_to_a_listed_folder_is_a_reason_to_train_again(labels):
    ran = report_of(labels, f"{labels.parent}/")
    (labels.parent / "more.txt").touch()
    assert obstacle(ran).startswith(f"it read {labels.parent}/, which the line does not declare and which is not")
    (labels.parent / "more.txt").unlink()
    assert obstacle(ran) == ""


def test_what_is_not_known_of_each_file_is_a_reason_to_train_again(labels):
    ran = report_of(labels)
    old = replace(ran, reads=(UndeclaredRead(path=str(labels), size_bytes=1),))
    assert obstacle(old) == "it read 1 file that the line does not declare, and its record does not say what they held"
    many = replace(ran, num_reads=101)
    assert obstacle(many) == "it read 101 files that the line does not declare: too many to be compared"
    folders = replace(ran, listed=(read_of(f"{labels.parent}/"),) * MOST_LISTED, num_listed=90)
    assert "1 file and at least 90 folders that the line does not declare: too many" in obstacle(folders)
    full = replace(ran, unseen=("the report of this rank was full",))
    assert obstacle(full) == "it read 1 file that the line does not declare, and the report of this rank was full"


def test_a_file_that_changed_between_its_first_read_and_the_end_of_the_ranks_is_noted(labels):
    ran = report_of(labels)
    assert with_changed_files(ran) == ran
    labels.write_text("7")
    late = with_changed_files(ran)
    assert [each.changed for each in late.reads] == [True]
    labels.write_text("1")
    assert obstacle(late) == f"{labels} changed while it ran"
    assert f"{labels}; {labels} changed meanwhile; data.text" in undeclared_reads_text(late)


def test_what_an_earlier_run_left_in_a_home_is_an_input_of_runs_with_that_home_alone(labels):
    ran = report_of(labels)
    ran = replace(ran, reads=(replace(ran.reads[0], left=True),))
    assert obstacle(ran, home=labels.parent) == ""
    for home in (labels.parent / "other", None):
        assert obstacle(ran, home=home) == (
            f"it read {labels}, which an earlier run left in a home that this run does not have"
        )


def test_what_earlier_runs_left_is_not_cut_off_behind_reads_of_another_gang(labels):
    many = tuple(UndeclaredRead(path=f"/d/{number}", size_bytes=1) for number in range(MOST_READS))
    seed = report_of(labels)
    seed = replace(seed, reads=(replace(seed.reads[0], left=True),))
    both = with_reads_of(report_of(reads=many, num_reads=MOST_READS), seed)
    assert (both.reads[0].left, len(both.reads), both.num_reads) == (True, MOST_READS, MOST_READS + 1)


def test_files_of_the_kernel_that_a_report_names_are_not_opened(labels):
    held = read_of("/proc/self/status")
    assert not is_same_now(held)
    assert not is_same_now(replace(held, path="/dev/null"))


def test_reads_of_another_gang_of_the_run_count_too(labels):
    ran = report_of(labels)
    other = labels.with_name("held-out.txt")
    other.write_text("2")
    both = with_reads_of(ran, report_of(labels, other, f"{labels.parent}/", programs=("cat",)))
    assert [each.path for each in both.reads] == [str(labels), str(other)]
    assert (both.num_reads, both.num_listed, both.programs) == (2, 1, ("cat",))
    assert with_reads_of(None, ran) == with_reads_of(ran, None) == ran
    labels.write_text("3")
    assert with_reads_of(ran, report_of(labels)).reads[0].changed


def test_the_sentence_of_a_training_that_is_taken_over_names_what_was_compared_and_no_more(labels):
    same = "same code, environment, plan and declared data"
    made = record()
    assert reuse_text(replace(made, ran=report_of(labels))) == (
        f"{same}; it read 1 file that the line does not declare, which is unchanged"
    )
    seen = report_of(labels, f"{labels.parent}/", hosts=("huggingface.co",), packages={"pyarrow": "20.0"})
    assert reuse_text(replace(made, ran=seen)) == (
        f"{same}; it read 1 file and 1 folder that the line does not declare, which are unchanged;"
        " reads of pyarrow are not visible; it connected to huggingface.co"
    )
    assert "other reads are not known: no rank reported" in reuse_text(replace(made, ran=None))
    assert reuse_text(replace(made, ran=report_of())) == same
