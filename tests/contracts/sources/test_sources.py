"""What every source does, whatever stands behind it."""

import pytest

from gangline.data import sources
from gangline.data.sources import SourceFile
from gangline.errors import IntegrityError, StorageError

DATA = bytes(range(256)) * 40


def test_files_are_found_by_globs_with_their_sizes(stand):
    for path in ("wiki/b.arrow", "wiki/a.arrow", "wiki/deep/c.arrow", "code/d.arrow", "wiki/readme.md"):
        stand.put(path, DATA[: len(path)])
    found = stand.source.find("wiki/*.arrow")
    assert found == [SourceFile("wiki/a.arrow", 12), SourceFile("wiki/b.arrow", 12)]
    assert [each.path for each in stand.source.find("**/*.arrow")] == [
        "code/d.arrow", "wiki/a.arrow", "wiki/b.arrow", "wiki/deep/c.arrow",
    ]  # fmt: skip
    assert stand.source.find("wiki/readme.md") == [SourceFile("wiki/readme.md", 14)]


def test_what_is_not_there_is_no_file_and_cannot_be_read(stand):
    stand.put("a.arrow", DATA)
    assert stand.source.find("nothing/*.arrow") == []
    assert stand.source.find("nothing.arrow") == []
    for read in (lambda: stand.source.read("nothing.arrow", 0, 1), lambda: list(stand.source.blocks("nothing.arrow"))):
        with pytest.raises(StorageError, match=r"here: wanted the file nothing\.arrow"):
            read()


def test_ranges_are_exact_and_end_with_the_file(stand):
    stand.put("a.arrow", DATA)
    for start, length in ((0, 1), (0, len(DATA)), (100, 4097), (len(DATA) - 7, 7)):
        assert stand.source.read("a.arrow", start, length) == DATA[start : start + length]
    assert stand.source.read("a.arrow", len(DATA) - 7, 100) == DATA[-7:]


@pytest.mark.parametrize("block", [1000, 10240, 1 << 20])
def test_blocks_are_the_file_in_pieces(stand, monkeypatch, block):
    monkeypatch.setattr(sources, "BLOCK_BYTES", block)
    stand.put("a.arrow", DATA)
    found = list(stand.source.blocks("a.arrow"))
    assert b"".join(found) == DATA
    assert max(map(len, found)) <= block


def test_names_with_spaces_and_signs_are_read(stand, request):
    names = ("a b.arrow", "c=1/ä.arrow", "100%.arrow")
    for path in ("c-1/a_b.arrow",) if request.node.callspec.params["stand"] == "s3" else names:  # keys of our stores
        stand.put(path, path.encode())
        assert stand.source.read(path, 0, 99) == path.encode()


@pytest.mark.parametrize("path", ["../a.arrow", "/etc/passwd", "x/../../a.arrow", "a\\b", "a\nb"])
def test_paths_stay_below_the_url(stand, path):
    for read in (
        lambda: stand.source.read(path, 0, 1),
        lambda: stand.source.find(path),
        lambda: list(stand.source.blocks(path)),
    ):
        with pytest.raises(IntegrityError, match="below its URL"):
            read()
