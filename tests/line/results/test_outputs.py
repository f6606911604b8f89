"""The list that a gang leaves of its outputs: believed in nothing. And what the gate makes of it."""

from dataclasses import replace

import pytest
from tests.line.records import record as a_record

from gangline.errors import IntegrityError
from gangline.line.results.outputs import check_outputs, judge_outputs
from gangline.spec.program_files import OmittedFile, OutputFile, Outputs
from gangline.spec.record import OutputsInfo

DIGEST = "a" * 64


def check(*files, **fields):
    made = Outputs(gang="g", files=tuple(OutputFile(path=p, size_bytes=s, sha256=d) for p, s, d in files), **fields)
    check_outputs(made, key="outputs.json", globs=("out/**",), most_files=2, most_bytes=100)
    return made


def test_a_list_of_what_was_asked_for_holds():
    listed = check(("out/a", 50, DIGEST), ("out/b", 50, DIGEST))
    assert [each.path for each in listed.files] == ["out/a", "out/b"]


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../x", "out/../../x", "out//a", "out/a\nb", "out\\a", "", "out/" + "a" * 999]
)
def test_a_path_that_leaves_the_folder_is_refused(path):
    with pytest.raises(IntegrityError, match="wanted a plain relative path"):
        check((path, 1, DIGEST))
    with pytest.raises(IntegrityError, match="wanted a plain relative path"):
        check(metrics=OutputFile(path=path, size_bytes=1, sha256=DIGEST))


@pytest.mark.row("P2")
@pytest.mark.parametrize("path", ["out/.git/config", "out/.GIT", ".git/hooks/x"])
def test_a_path_of_a_git_folder_is_refused(path):
    with pytest.raises(IntegrityError, match="wanted a path outside of git folders"):
        check((path, 1, DIGEST))


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ([("secret", 1, DIGEST)], "project.outputs names"),
        ([("out/a", 101, DIGEST)], "wanted at most 2 files of 100 B"),
        ([(f"out/{n}", 1, DIGEST) for n in range(3)], "found 3 of"),
        ([("out/a", -1, DIGEST)], "SHA-256 and size"),
        ([("out/a", 1, "../../x")], "SHA-256 and size"),
        ([("out/b", 1, DIGEST), ("out/a", 1, DIGEST)], "each path once"),
        ([("out/a", 1, DIGEST), ("out/a", 1, DIGEST)], "each path once"),
    ],
)
def test_a_list_that_lies_is_refused(files, said):
    with pytest.raises(IntegrityError, match=said):
        check(*files)


def judged(**info):
    return judge_outputs(replace(a_record(), outputs=OutputsInfo(key="k", **info)))


def test_the_gate_says_no_where_something_declared_is_missing():
    assert judge_outputs(a_record()) is None
    assert judged(num_files=1, size_bytes=5).verdict == "yes"
    assert judged(num_files=1, unused=("*.pt",)).reason == "1 file, 0 B, by digest; no file matched *.pt"
    assert judged(num_files=0, unused=("out/**",)).verdict == "no"
    assert judged(num_files=0, refused="too much").reason == "too much"
    link = OmittedFile(path="out/l", reason="a link", is_lost=False)
    assert judged(num_files=1, left_out=(link,), num_left_out=1).verdict == "yes"
    lost = OmittedFile(path="out/m", reason="it changed")
    assert judged(num_files=1, left_out=(link, lost), num_left_out=2).verdict == "no"
