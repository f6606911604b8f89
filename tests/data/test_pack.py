"""Pack: every format in, equal files give the same version, and a pack that was killed continues."""

import gzip
import io
import json
import tarfile
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from gangline.data.arrow_rows import ArrowRows
from gangline.data.journal import PackJournal
from gangline.data.pack import PackOptions, TextTokenizer, pack
from gangline.errors import ConfigError
from gangline.spec.dataset import DatasetOrigin
from gangline.storage.folder.store import FolderStore
from gangline.storage.objects.protocol import Entry

ROWS = [{"text": f"line {n} " + "x" * (n % 7), "label": n} for n in range(40)]


class Killed(BaseException):
    """Stands for a kill -9: nothing catches it."""


@pytest.fixture
def corpus(tmp_path):
    return write_corpus(tmp_path / "in")


def write_corpus(folder):
    folder.mkdir()
    files = [folder / f"{number}.jsonl" for number in range(4)]
    for number, path in enumerate(files):
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS[number * 10 : number * 10 + 10]))
    return files


@pytest.fixture
def tokenizer(tmp_path):
    words = {"<|endoftext|>": 0, "[UNK]": 1, "line": 2} | {str(n): n + 3 for n in range(40)}
    made = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    path = tmp_path / "tokenizer.json"
    made.save(str(path))
    return path


def packed(files, tmp_path, *, store=None, journal=None, notify=lambda _: None, **options):
    return pack(
        files, PackOptions(**options), name="wiki", origin=DatasetOrigin(),
        store=store or FolderStore(tmp_path / "store"), journal=journal or PackJournal(tmp_path / "journal.jsonl"),
        notify=notify,
    )  # fmt: skip


def rows_of(dataset, tmp_path, split="train"):
    found = []
    for shard in dataset.shards:
        if shard.split == split:
            found += list(ArrowRows(tmp_path / "store" / shard.key))
    return found


def test_rows_of_json_lines_are_all_there_in_their_order(corpus, tmp_path):
    made = packed(corpus, tmp_path, shard_bytes=100)
    assert [(row["text"], row["label"].item()) for row in rows_of(made, tmp_path)] == [
        (row["text"], row["label"]) for row in ROWS
    ]
    assert made.num_samples == 40
    assert len(made.shards) == 1  # a record batch of 4 MB holds them
    assert made.schema == (("text", "string"), ("label", "int64"))


def test_the_same_files_and_options_are_the_same_version(corpus, tmp_path):
    versions = {packed(corpus, tmp_path, journal=PackJournal(tmp_path / f"{n}.jsonl")).version for n in range(2)}
    versions |= {packed(corpus, tmp_path, journal=PackJournal(tmp_path / "h.jsonl"), holdout=0.2).version}
    assert len(versions) == 2


def write_formats(tmp_path):
    table = pa.Table.from_pylist([{"text": row["text"].strip()} for row in ROWS])
    plain = [row["text"].strip() for row in ROWS]
    (tmp_path / "a.txt").write_text("\n\n".join(plain))
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress("\n".join(plain).encode()))
    (tmp_path / "a.csv").write_text("text\n" + "\n".join(plain) + "\n")
    pq.write_table(table, tmp_path / "a.parquet")
    with pa.ipc.new_file(str(tmp_path / "a.arrow"), table.schema) as file:
        file.write_table(table)
    with pa.ipc.new_stream(str(tmp_path / "stream.arrow"), table.schema) as file:
        file.write_table(table)
    return plain


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.csv", "a.parquet", "a.arrow", "stream.arrow"])
def test_every_format_gives_the_same_rows(tmp_path, name):
    plain = write_formats(tmp_path)
    made = packed([tmp_path / name], tmp_path)
    assert [row["text"] for row in rows_of(made, tmp_path)] == plain


def write_tar(path, members):
    with tarfile.open(path, "w") as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def test_members_of_a_tar_become_samples_by_their_names(tmp_path):
    path = tmp_path / "a.tar"
    write_tar(
        path, [(f"d/{n}.{end}", data) for n in range(3) for end, data in (("jpg", b"\xff" * n), ("cls", b"%d" % n))]
    )
    rows = rows_of(packed([path], tmp_path), tmp_path)
    assert [(row["__key__"], row["jpg"], row["cls"].item()) for row in rows] == [
        (f"d/{n}", b"\xff" * n, n) for n in range(3)
    ]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_a_tar_with_links_or_devices_is_refused_by_member(tmp_path, kind):
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as tar:
        info = tarfile.TarInfo("evil.jpg")
        info.type, info.linkname = kind, "/etc/passwd"
        tar.addfile(info)
    with pytest.raises(ConfigError, match=r"a\.tar: evil\.jpg: wanted regular files"):
        packed([path], tmp_path)


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([("../a.jpg", b"")], r"\.\./a\.jpg: wanted a path that stays inside"),
        ([("/a.jpg", b"")], r"/a\.jpg: wanted a path that stays inside"),
        ([("a.jpg", b""), ("b.png", b"")], r"a\.tar: b: wanted members __key__, jpg, found __key__, png"),
        ([("a.jpg", b""), ("a.jpg", b"")], r"a\.jpg: wanted one file"),
        ([("a.cls", b"x")], r"a\.cls: wanted int64"),
        ([], "without files"),
    ],
)
def test_a_tar_of_other_members_is_refused_by_name(tmp_path, members, message):
    write_tar(tmp_path / "a.tar", members)
    with pytest.raises(ConfigError, match=message):
        packed([tmp_path / "a.tar"], tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("b.jsonl", '{"text": "a"}\n', r"b\.jsonl: .*nulls"),
        ("b.jsonl", '{"text": "a", "label": 1, "more": 2}\n', r"b\.jsonl: .*unexpected field"),
        ("b.jsonl", '{"text": "a", "label": 1.5}\n', r"b\.jsonl: wanted rows of one form"),
        ("b.jsonl", "{", r"b\.jsonl: wanted rows of one form"),
        ("b.txt", "a\n", r"b\.txt: wanted the columns of the files before, text string, label int64"),
        ("b.doc", "a", r"b\.doc: wanted a file that ends in"),
        ("b.txt.bak", "a", r"b\.txt\.bak: wanted a file that ends in"),
    ],
)
def test_a_file_of_another_form_is_refused_by_name(corpus, tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(ConfigError, match=message):
        packed([*corpus, tmp_path / name], tmp_path)


def test_files_without_samples_are_refused(tmp_path, tokenizer):
    (tmp_path / "a.txt").write_text("\n \n")
    with pytest.raises(ConfigError, match="wanted rows, found fewer"):
        packed([tmp_path / "a.txt"], tmp_path)
    (tmp_path / "a.txt").write_text("line 1\n")
    with pytest.raises(ConfigError, match="wanted texts of 101 tokens"):
        packed([tmp_path / "a.txt"], tmp_path, tokens=100, tokenizer=TextTokenizer.open(tokenizer))


@given(count=st.integers(0, 3000), share=st.sampled_from([0.01, 0.1, 0.37]), cut=st.integers(0, 3000))
def test_what_is_held_out_depends_on_the_number_of_a_row_alone(count, share, cut):
    from gangline.data.pack import _held_out

    whole = _held_out(0, count, share)
    cut = min(cut, count)
    assert [*_held_out(0, cut, share), *_held_out(cut, count - cut, share)] == [*whole]
    assert abs(whole.sum() - share * count) < 4


def test_tokens_are_those_of_all_texts_in_a_row_each_predicted_once(corpus, tmp_path, tokenizer):
    opened = TextTokenizer.open(tokenizer)
    made = packed(corpus, tmp_path, tokens=5, tokenizer=opened, shard_bytes=50)
    stream = [one for row in ROWS for one in (*opened.tokenizer.encode(row["text"]).ids, 0)]
    found = [row["tokens"].tolist() for row in rows_of(made, tmp_path)]
    assert found == [stream[at : at + 6] for at in range(0, len(stream) - 5, 5)]
    assert made.schema == (("tokens", "fixed_size_list<element: uint16>[6]"),) or "uint16" in made.schema[0][1]
    assert made.options["tokenizer"] == opened.digest
    assert rows_of(made, tmp_path)[0]["tokens"].dtype == np.uint16


def test_text_without_the_column_or_the_end_is_refused(corpus, tmp_path, tokenizer):
    opened = TextTokenizer.open(tokenizer)
    with pytest.raises(ConfigError, match="nulls"):
        packed(corpus, tmp_path, tokens=5, tokenizer=opened, column="body")
    (tmp_path / "a.txt").write_text("a")
    with pytest.raises(ConfigError, match="wanted a column 'body' of text"):
        packed([tmp_path / "a.txt"], tmp_path, tokens=5, tokenizer=opened, column="body")
    with pytest.raises(ConfigError, match="wanted a token that ends a text"):
        TextTokenizer.open(tokenizer, "<none>")
    with pytest.raises(ConfigError, match=r"wanted a tokenizer\.json"):
        TextTokenizer.open(corpus[0])


class DyingStore:
    """Blobs in memory; dies at a write, before or after it."""

    def __init__(self):
        self.left, self.after, self.blobs = 10**9, False, {}

    def head(self, key):
        return Entry(key, len(self.blobs[key]), 0.0) if key in self.blobs else None

    def put(self, key, data):
        self.left -= 1
        if self.left < 0 and not self.after:
            raise Killed
        self.blobs[key] = data
        if self.left < 0:
            raise Killed


@pytest.mark.row("DL8")
@pytest.mark.parametrize("is_tokens", [False, True])
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_pack_that_was_killed_anywhere_continues_to_the_same_version(
    tmp_path_factory, is_tokens, data, small_batches
):
    tmp_path = tmp_path_factory.mktemp("pack")
    files = write_corpus(tmp_path / "in")
    options = {"holdout": 0.3, "shard_bytes": 40}
    if is_tokens:
        options |= {"tokens": 3, "tokenizer": small_batches}
    wanted = packed(files, tmp_path, store=DyingStore(), journal=PackJournal(tmp_path / "whole.jsonl"), **options)
    assert len(wanted.shards) > 4
    store, path = DyingStore(), tmp_path / "second.jsonl"
    while True:
        store.left, store.after = data.draw(st.integers(1, 8)), data.draw(st.booleans())
        try:
            found = packed(files, tmp_path, store=store, journal=PackJournal(path), **options)
            break
        except Killed:
            if data.draw(st.booleans()):  # the last line of the journal is torn
                torn = path.read_bytes() if path.exists() else b""
                path.write_bytes(torn + b'{"split": "tr')
    assert found == wanted
    assert found.version == wanted.version


@pytest.fixture
def small_batches(monkeypatch, tmp_path):
    """Record batches of one row or two, so that few rows make many shards; a tokenizer."""
    from gangline.data import arrow_shards

    writer = arrow_shards.ShardWriter.__init__
    monkeypatch.setattr(
        arrow_shards.ShardWriter, "__init__", lambda *given, **named: writer(*given, **{**named, "batch_bytes": 30})
    )
    words = {"<|endoftext|>": 0, "[UNK]": 1, "line": 2} | {str(n): n + 3 for n in range(40)}
    made = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.save(str(tmp_path / "t.json"))
    return TextTokenizer.open(tmp_path / "t.json")


def test_a_second_call_reads_no_finished_file_and_stores_no_finished_shard(corpus, tmp_path, small_batches):
    journal = tmp_path / "j.jsonl"
    packed(corpus, tmp_path, journal=PackJournal(journal), shard_bytes=40)
    lines = journal.read_text().splitlines(keepends=True)
    cut = next(n for n, line in enumerate(lines) if '"file": 2' in line) + 1
    journal.write_text("".join(lines[:cut]))
    corpus[1].write_text("damaged")
    store = FolderStore(tmp_path / "store")
    puts = []
    store.put = lambda key, data: puts.append(key)
    packed(corpus, tmp_path, store=store, journal=PackJournal(journal), shard_bytes=40)
    assert puts == []


def test_shards_are_bounded(corpus, tmp_path, monkeypatch, small_batches):
    monkeypatch.setattr("gangline.data.pack.MOST_SHARDS", 3)
    with pytest.raises(ConfigError, match="wanted at most 3 shards"):
        packed(corpus, tmp_path, shard_bytes=10)


def test_origin_and_options_are_in_the_document(corpus, tmp_path):
    made = packed(corpus, tmp_path, holdout=0.25)
    assert made.options == {"holdout": 0.25, "shard_bytes": 64_000_000}
    assert {shard.split for shard in made.shards} == {"train", "holdout"}
    assert replace(made, origin=DatasetOrigin(commit="a")).version != made.version
