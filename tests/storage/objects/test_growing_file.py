"""Files of lines in parts: each line is read once, whatever a writer that was killed left, and is seldom sent twice."""

from contextlib import suppress
from functools import partial
from io import BytesIO
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.errors import StorageError
from gangline.storage.folder.store import FolderStore
from gangline.storage.objects import growing_file
from gangline.storage.objects.growing_file import GrowingFileWriter, find_growing_file, join_parts, split_lines

read_grown = partial(growing_file.read_growing_file, most_bytes=1 << 30)
KEY = "r/ranks/0.jsonl"
WRITES = {"put", "delete"}


class Watched:
    """A store that counts what is written, and fails from its n-th write on."""

    def __init__(self, store, *, writes=10**9):
        self._store, self._left = store, writes
        self.sent = 0

    def __getattr__(self, name):
        if name not in WRITES:
            return getattr(self._store, name)
        if self._left == 0:
            raise StorageError("killed")
        self._left -= 1
        return getattr(self, f"_{name}")

    def _put(self, key, data):
        self.sent += len(data)
        return self._store.put(key, data)

    def _delete(self, key):
        return self._store.delete(key)


@pytest.fixture
def store(tmp_path):
    return FolderStore(tmp_path / "store")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "0.jsonl"


@pytest.fixture
def small(monkeypatch):
    """Parts of a hundred bytes."""
    monkeypatch.setattr(growing_file, "PART_BYTES", 100)


def lines(first, last, of="a"):
    return "".join(f'{{"of":"{of}","step":{step}}}\n' for step in range(first, last)).encode()


def grow(path, data):
    with path.open("ab") as file:
        file.write(data)


def keys(store):
    return [entry.key for entry in store.list("r/")]


def test_bytes_that_are_sent_grow_as_the_file_does(store, path):
    watched = Watched(store)
    writer = GrowingFileWriter(watched, KEY)
    sent = []
    for _ in range(256):
        grow(path, (b"x" * 1023 + b"\n") * 16)
        writer.send(path)
        sent.append(watched.sent)
    assert sent[255] < 2.1 * sent[127], "twice the steps, twice the bytes"
    assert sent[255] < 10 * path.stat().st_size
    assert read_grown(store, KEY) == path.read_bytes()


@pytest.mark.usefixtures("small")
def test_only_whole_lines_are_sent_and_none_twice(store, path):
    writer = GrowingFileWriter(store, KEY)
    for step in range(40):
        grow(path, lines(step, step + 1) + b'{"torn')
        writer.send(path)
        assert read_grown(store, KEY) == lines(0, step + 1)
        path.write_bytes(lines(0, step + 1))
    assert len(keys(store)) > 5


@pytest.mark.usefixtures("small")
def test_line_longer_than_a_part_is_a_part(store, path):
    writer = GrowingFileWriter(store, KEY)
    grow(path, b"x" * 500)
    writer.send(path)
    assert read_grown(store, KEY) is None
    grow(path, b"\n" + lines(0, 2))
    writer.send(path)
    assert read_grown(store, KEY) == path.read_bytes()


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("writes", range(12))
def test_writer_killed_at_any_write_loses_nothing_and_another_continues(store, path, writes):
    killed = GrowingFileWriter(Watched(store, writes=writes), KEY)
    before = b""
    with suppress(StorageError):
        for step in range(0, 60, 3):
            grow(path, lines(step, step + 3))
            killed.send(path)
            before = path.read_bytes()
    left = read_grown(store, KEY) or b""
    assert path.read_bytes().startswith(left)
    assert left.startswith(before)
    heir = Watched(store)
    grow(path, lines(60, 70))
    GrowingFileWriter(heir, KEY).send(path)
    assert read_grown(store, KEY) == path.read_bytes()
    assert heir.sent <= len(path.read_bytes()) - len(left) + 200, "what the store has is not sent again"


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("writes", range(16))
def test_parts_of_another_gang_never_mix_with_those_of_this_one(store, path, writes):
    grow(path, lines(0, 40, of="a"))
    GrowingFileWriter(store, KEY).send(path)
    path.write_bytes(lines(0, 30, of="b"))
    try:
        GrowingFileWriter(Watched(store, writes=writes), KEY).send(path)
    except StorageError:
        left = read_grown(store, KEY) or b""
        assert lines(0, 40, of="a").startswith(left) or lines(0, 30, of="b").startswith(left)
    GrowingFileWriter(store, KEY).send(path)
    assert read_grown(store, KEY) == path.read_bytes()


@pytest.mark.usefixtures("small")
def test_file_that_a_program_writes_again_replaces_what_was_sent(store, path):
    writer = GrowingFileWriter(store, KEY)
    for text in (lines(0, 30, of="a"), lines(0, 3, of="b"), lines(0, 50, of="c"), lines(0, 60, of="d")):
        path.write_bytes(text)
        writer.send(path)
        assert read_grown(store, KEY) == text


def test_one_large_object_of_an_earlier_release_is_read_and_gone_on_with(store, path):
    grow(path, (b"x" * 1023 + b"\n") * 1000)
    store.put(KEY, path.read_bytes())
    watched = Watched(store)
    grow(path, b"more\n")
    GrowingFileWriter(watched, KEY).send(path)
    assert watched.sent == 5
    assert read_grown(store, KEY) == path.read_bytes()


@pytest.mark.usefixtures("small")
def test_end_of_a_file_is_read_without_the_rest(store, path):
    grow(path, lines(0, 40))
    GrowingFileWriter(store, KEY).send(path)
    whole = path.read_bytes()
    for last in (0, 1, 99, 100, 101, 250, len(whole), len(whole) + 1):
        assert read_grown(store, KEY, last=last) == whole[len(whole) - min(last, len(whole)) :]
    assert find_growing_file(store, KEY).size_bytes == len(whole)


@pytest.mark.usefixtures("small")
def test_names_that_only_look_alike_are_other_files(store, path):
    grow(path, lines(0, 40))
    GrowingFileWriter(store, KEY).send(path)
    for other in ("r/ranks/0-1.jsonl", "r/ranks/0.log", "r/ranks/0.12.jsonl", "r/ranks/00.jsonl"):
        store.put(other, b"another\n")
    assert read_grown(store, KEY) == path.read_bytes()
    assert read_grown(store, "r/ranks/0-1.jsonl") == b"another\n"
    assert read_grown(store, "r/ranks/1.jsonl") is None


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("writes", range(10))
def test_parts_are_joined_without_a_moment_at_which_a_line_is_lost_or_doubled(store, path, writes):
    grow(path, lines(0, 40))
    GrowingFileWriter(store, KEY).send(path)
    try:
        join_parts(Watched(store, writes=writes), KEY)
    except StorageError:
        assert read_grown(store, KEY) == path.read_bytes()
        join_parts(store, KEY)
    assert keys(store) == [KEY]
    assert store.get(KEY).data == path.read_bytes()


@given(text=st.binary(max_size=60).map(lambda data: data.replace(b"0", b"\n")), cuts=st.lists(st.integers(0, 60)))
def test_lines_are_the_same_however_the_text_is_cut(text, cuts):
    ends = sorted({*(min(cut, len(text)) for cut in cuts), 0, len(text)})
    blocks = [text[start:end] for start, end in pairwise(ends)]
    assert list(split_lines(blocks)) == list(BytesIO(text))


def test_long_lines_are_left_out_wherever_the_blocks_end(monkeypatch):
    monkeypatch.setattr(growing_file, "MOST_LINE_BYTES", 10)
    text = b"a\n" + b"x" * 30 + b"\nb\n" + b"y" * 11 + b"\n" + b"z" * 9 + b"\nc"
    for size in range(1, len(text) + 1):
        blocks = [text[at : at + size] for at in range(0, len(text), size)]
        assert list(split_lines(blocks)) == [b"a\n", b"b\n", b"z" * 9 + b"\n", b"c"]


@pytest.mark.parametrize("size", [0, 5, 20, 21, 200])
def test_an_object_of_any_size_is_written_from_blocks(store, monkeypatch, size):
    monkeypatch.setattr(growing_file, "BLOCK_BYTES", 6 * 2**20)
    text = bytes(range(256)) * 4096 * size
    growing_file.put_blocks(store, "big", (text[at : at + 2**20] for at in range(0, len(text), 2**20)))
    assert store.get("big").data == text
    assert store.open_uploads("") == []


@pytest.mark.usefixtures("small")
def test_a_copy_is_another_file_of_the_same_lines_and_is_made_once(store, path):
    grow(path, lines(0, 40))
    GrowingFileWriter(store, KEY).send(path)
    growing_file.copy_growing_file(find_growing_file(store, KEY), "r/ranks/0-1.jsonl")
    store.put(KEY, b"written over\n")
    growing_file.copy_growing_file(find_growing_file(store, KEY), "r/ranks/0-1.jsonl")
    assert read_grown(store, "r/ranks/0-1.jsonl") == path.read_bytes()
