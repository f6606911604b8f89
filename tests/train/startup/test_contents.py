"""What is noted of a file or folder when a program opens it, and what that costs at most."""

import hashlib
import os
import time

import pytest

from gangline.train.startup import audit, contents, file_reads
from gangline.train.startup.contents import Contents, contents_of


def test_a_file_has_its_times_and_the_digest_of_its_content(tmp_path):
    path = tmp_path / "labels.txt"
    path.write_bytes(b"0 1 2")
    found = contents_of(str(path))
    status = path.stat()
    digest = hashlib.sha256(b"0 1 2").hexdigest()
    assert found == Contents(5, status.st_mtime_ns, status.st_ctime_ns, digest)
    assert contents_of(str(path), most_bytes=4) == found._replace(sha256="")


def test_a_folder_has_the_digest_of_its_names_in_any_order(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    for folder, names in ((one, "abc"), (two, "cab")):
        folder.mkdir()
        for name in names:
            (folder / name).touch()
    first, second = contents_of(f"{one}/"), contents_of(f"{two}/")
    assert (first.size_bytes, first.sha256) == (3, second.sha256)
    (two / "d").touch()
    assert contents_of(f"{two}/").sha256 != first.sha256


@pytest.mark.timeout(20)
def test_what_is_no_file_has_no_content_and_nothing_waits_for_it(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").touch()
    names = ("pipe", "absent", "", "file/", "absent/", "nul\0")
    assert [contents_of(f"{tmp_path}/{name}") for name in names if name] == [None] * 5
    assert contents_of("/dev/zero") is None


def test_a_file_that_changes_while_it_is_read_has_no_digest(tmp_path, monkeypatch):
    path = tmp_path / "growing"
    path.write_bytes(b"0")
    read = os.read

    def grows(handle, size):
        with path.open("ab") as file:
            file.write(b"1")
        return read(handle, size)

    monkeypatch.setattr(contents.os, "read", grows)
    assert contents_of(str(path)).sha256 == ""


def test_a_process_reads_a_bounded_number_of_bytes_a_second_time(workspace, monkeypatch):
    monkeypatch.setattr(file_reads, "MOST_DIGESTED_BYTES", 10)
    for name in ("a", "b", "c"):
        (workspace.outside / name).write_bytes(b"0" * 4)
    time.sleep(0.02)  # files of before the gang
    reads = audit.ProgramAudit(str(workspace.reported), workspace.environ()).reads
    for name in ("a", "b", "c"):
        reads.opened(str(workspace.outside / name), os.O_RDONLY)
    assert [bool(each["sha256"]) for each in workspace.lines("read")] == [True, True, False]
    assert all(each["ctime_ns"] for each in workspace.lines("read"))


def test_folders_that_a_program_lists_are_reported_once_and_those_of_its_commit_are_not(workspace):
    done = workspace.run(
        "import glob, os, pathlib, tempfile\nout = os.environ['OUTSIDE']\n"
        "os.mkdir('data'); os.listdir(); os.listdir('data')\n"
        "os.listdir(out); list(os.scandir(out)); list(pathlib.Path(out).iterdir()); glob.glob(out + '/*.txt')\n"
        "os.listdir(os.open(out, os.O_RDONLY)); os.listdir(tempfile.gettempdir())\n"
    )
    assert done.returncode == 0, done.stderr
    (listed,) = workspace.lines("listed")
    assert (listed["path"], listed["size_bytes"]) == (f"{workspace.outside}/", 1)
    assert workspace.lines("ran")[-1]["listed"] == 1


def test_a_module_of_elsewhere_is_a_read_though_its_compiled_form_is_there(workspace):
    (workspace.outside / "stray.py").write_text("")
    text = "import sys, os; sys.path.append(os.environ['OUTSIDE']); import stray\n"
    for _ in range(2):
        workspace.run(text)
        (read,) = workspace.lines("read")
        assert read["path"] == str(workspace.outside / "stray.py")
        assert workspace.lines("listed") == [], "a search for modules"
        workspace.reported.unlink()
