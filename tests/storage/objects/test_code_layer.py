"""Code layers: what is laid out, and what is refused before it is."""

import io
import stat
import struct
import zipfile
from contextlib import suppress
from pathlib import PurePosixPath

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangline.errors import IntegrityError, StorageError
from gangline.storage.objects import code_layer, paths
from gangline.storage.objects.blobs import put_blob
from gangline.storage.objects.code_layer import LayerFile, fetch_layer, pack, read_layer, unpack
from gangline.storage.open import open_store

GOOD = (LayerFile("bin/go.sh", b"#!", executable=True), LayerFile("model.py", b"x" * 100))


def zip_of(*members, **how):
    """A ZIP by the library, as an attacker would make one; a member is a name or a ZipInfo, with its content."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", **how) as archive:
        for name, data in members:
            info = name if isinstance(name, zipfile.ZipInfo) else zipfile.ZipInfo(name)
            if not isinstance(name, zipfile.ZipInfo):
                info.external_attr = 0o100644 << 16
            archive.writestr(info, data)
    return out.getvalue()


def info(name, mode=0o100644, **fields):
    made = zipfile.ZipInfo(name)
    made.external_attr = mode << 16
    for field, value in fields.items():
        setattr(made, field, value)
    return made


def renamed(old, new):
    """A good layer whose file `old` is called `new` in both its places, whatever `pack` thinks of that name."""
    assert len(old) == len(new)
    return pack([LayerFile(old, b"x")]).replace(old.encode(), new if isinstance(new, bytes) else new.encode())


def patched(data, at, fmt, value):
    changed = bytearray(data)
    struct.pack_into(fmt, changed, at, value)
    return bytes(changed)


def test_layer_is_laid_out_with_executables_only_where_they_were(tmp_path):
    store = open_store(f"file:{tmp_path / 'store'}")
    key = put_blob(store, pack(GOOD))
    assert fetch_layer(store, key, tmp_path / "code") == 2
    assert (tmp_path / "code/model.py").stat().st_mode & 0o7777 == 0o644
    assert (tmp_path / "code/bin/go.sh").stat().st_mode & 0o7777 == 0o755
    with pytest.raises(StorageError, match="found none"):
        fetch_layer(store, "blobs/sha256/" + "0" * 64, tmp_path / "other")


letters = st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="/\\")
parts = st.text(letters, min_size=1, max_size=8).filter(lambda part: part not in {".", ".."})
names = st.lists(parts, min_size=1, max_size=3).map("/".join)


@given(files=st.dictionaries(names, st.tuples(st.binary(max_size=50), st.booleans()), max_size=6), order=st.randoms())
def test_what_is_packed_is_read_by_us_and_by_the_library_whatever_the_order(files, order):
    wanted = [LayerFile(path, data, executable) for path, (data, executable) in files.items()]
    try:
        packed = pack(wanted)
    except IntegrityError:
        return  # a file that is a folder, or a git folder
    order.shuffle(wanted)
    assert pack(wanted) == packed
    ours = {file.path: (bytes(file.data), file.executable) for file in read_layer(packed)}
    assert ours == files
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        assert archive.testzip() is None
        theirs = {each.filename: (archive.read(each), each.external_attr >> 16) for each in archive.infolist()}
    assert theirs == {path: (data, 0o100755 if run else 0o100644) for path, (data, run) in files.items()}


HOSTILE = {
    "parent": zip_of(("../out", b"x")),
    "parent inside": zip_of(("a/../../out", b"x")),
    "absolute": zip_of(("/tmp/gangline-out", b"x")),
    "backslash": renamed("aaaaa.py", "..\\ou.py"),
    "NUL": renamed("aaaaa.py", b"a\0../.py"),
    "line break": renamed("aaaaa.py", "aaa\naapy"),
    "drive": zip_of(("C:\\out", b"x")),
    "dot": zip_of(("./a", b"x")),
    "double slash": zip_of(("a//b", b"x")),
    "empty name": zip_of(("", b"x")),
    "long name": zip_of(("a" * 901, b"x")),
    "no UTF-8": renamed("aaaaa.py", b"\xff\xfeaaaapy"),
    "folder": zip_of(("a/", b"")),
    "link": zip_of((info("link", stat.S_IFLNK | 0o777), b"/etc")),
    "device": zip_of((info("device", stat.S_IFCHR | 0o666), b"")),
    "pipe": zip_of((info("pipe", stat.S_IFIFO | 0o666), b"")),
    "setuid": zip_of((info("tool", 0o104755), b"x")),
    "no mode": zip_of((info("plain", 0), b"x")),
    "file and folder": zip_of(("a", b"x"), ("a/b", b"x")),
    "git folder": renamed("xgit/hooks/x", ".git/hooks/x"),
    "git folder in capitals": renamed("a/xgit/config", "a/.GIT/config"),
    "short name of a git folder": renamed("xit~1/config", "git~1/config"),
    "git folder with a dot behind": renamed("xgit./config", ".git./config"),
    "git folder with a character that HFS+ ignores": renamed("xg\u200cit/config", ".g\u200cit/config"),
    "git file": renamed("xgit", ".git"),
    "deflated": zip_of(("a", b"x" * 500), compression=zipfile.ZIP_DEFLATED),
    "another time": zip_of((info("a", date_time=(2026, 1, 1, 0, 0, 0)), b"x")),
    "comment of an entry": zip_of((info("a", comment=b"c"), b"x")),
    "extra field": zip_of((info("a", extra=b"\x01\x00\x01\x00x"), b"x")),
    "unsorted": zip_of(("b", b"2"), ("a", b"1")),
    "encrypted": patched(pack(GOOD), 6, "<H", 0x801),
    "descriptor that lies": patched(pack(GOOD), 6, "<H", 0x808),
    "size that lies": patched(pack(GOOD), 22, "<I", 1),
    "huge size": patched(pack(GOOD), 22, "<I", 0xFFFFFFFF),
    "wrong checksum": patched(pack(GOOD), 14, "<I", 1),
    "changed content": pack(GOOD).replace(b"x" * 100, b"y" * 100),
    "bytes before": b"#!/bin/sh\n" + pack(GOOD),
    "bytes after": pack(GOOD) + b"\0",
    "two archives": pack(GOOD) + pack(GOOD),
    "comment": pack(GOOD)[:-2] + b"\x01\x00c",
    "cut off": pack(GOOD)[:-30],
    "no end": pack(GOOD)[:-22],
    "hidden between": pack(GOOD).replace(b"PK\1\2", b"hidden!!PK\1\2", 1),
    "overlap": pack(GOOD)[:-22] + patched(pack(GOOD)[-22:], 16, "<I", 0),
    "one entry less in the end": patched(pack(GOOD), len(pack(GOOD)) - 12, "<H", 1),
    "tar": b"model.py" + b"\0" * 1016,
    "gzip": b"\x1f\x8b" + b"0" * 600,
    "nothing": b"",
}  # fmt: skip


def test_names_that_differ_in_case_or_form_are_laid_out_where_the_file_system_keeps_them_apart(tmp_path):
    names = ("Model.py", "model.py", "\u00e9.py", "e\u0301.py", "Folder/a", "folder/a")
    unpack(pack([LayerFile(name, name.encode()) for name in names]), tmp_path / "code")
    assert [(tmp_path / "code" / name).read_bytes() for name in names] == [name.encode() for name in names]


def test_where_it_does_not_both_are_named_and_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "_is_one", lambda one, other, folder: True)  # as on a Mac
    data = pack([LayerFile("Folder/a", b"1"), LayerFile("folder/b", b"2"), LayerFile("x", b"3")])
    with pytest.raises(
        IntegrityError, match=r"Folder and folder are one name on the file system of .*project\.exclude"
    ):
        unpack(data, tmp_path / "code")
    assert list(tmp_path.iterdir()) == []


def with_twice():
    with pytest.warns(UserWarning, match="Duplicate"):
        return zip_of(("a", b"x"), ("a", b"y"))


@pytest.mark.row("P2")
@pytest.mark.parametrize("name", [*HOSTILE, "twice"])
def test_anything_but_plain_files_below_the_folder_is_refused_and_nothing_is_written(tmp_path, name):
    data = with_twice() if name == "twice" else HOSTILE[name]
    with pytest.raises(IntegrityError):
        unpack(data, tmp_path / "code")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.row("P2")
@settings(max_examples=300)
@given(at=st.integers(0, len(pack(GOOD)) - 1), value=st.integers(0, 255))
def test_no_byte_of_a_layer_can_change_but_into_another_good_layer(at, value):
    data = bytearray(pack(GOOD))
    data[at] = value
    with suppress(IntegrityError):
        assert pack(read_layer(bytes(data))) == bytes(data)


def test_layer_that_claims_too_much_is_refused_before_it_is_read(monkeypatch):
    monkeypatch.setattr(code_layer, "MAX_BYTES", 50)
    with pytest.raises(IntegrityError, match="at most 50 B"):
        read_layer(b"PK\3\4" * 100)


def test_too_many_files_and_too_much_are_refused_at_both_ends(monkeypatch):
    data = pack(GOOD)
    monkeypatch.setattr(code_layer, "MAX_FILES", 1)
    for refuse in (lambda: pack(GOOD), lambda: read_layer(data)):
        with pytest.raises(IntegrityError, match="at most 1 files"):
            refuse()
    monkeypatch.setattr(code_layer, "MAX_FILES", 2)
    monkeypatch.setattr(code_layer, "MAX_BYTES", 101)
    for refuse in (lambda: pack(GOOD), lambda: read_layer(data)):
        with pytest.raises(IntegrityError, match="101 B"):
            refuse()


@given(data=st.binary(max_size=3000))
def test_no_bytes_do_anything_but_unpack_or_be_refused(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("layer")
    with suppress(IntegrityError):
        unpack(data, folder / "code")
    assert {path.name for path in folder.iterdir()} <= {"code"}


def is_plain(path):
    """The slow rule: what `pathlib` makes of it is what it was."""
    parts = PurePosixPath(path).parts
    shown = "\\" not in path and not any(ord(each) < 32 or ord(each) == 127 for each in path)
    return bool(parts) and "/".join(parts) == path and shown and parts[0][0] != "/" and ".." not in parts


@given(path=st.text(alphabet="a./\\\n\x7f~", max_size=8))
def test_plain_paths_are_those_that_pathlib_leaves_as_they_are(path):
    if is_plain(path):
        paths.check_path(path)
    else:
        with pytest.raises(IntegrityError, match="plain relative path"):
            paths.check_path(path)


@given(names=st.sets(st.sampled_from(["a", "a/b", "a/b/c", "ab", "ab/c", "b/a", "b"]), min_size=2))
def test_path_that_is_a_file_and_a_folder_is_refused(names):
    clashes = any(str(parent) in names for each in names for parent in PurePosixPath(each).parents)
    files = [LayerFile(each, b"") for each in sorted(names)]
    if clashes:
        with pytest.raises(IntegrityError, match="a file and a folder"):
            pack(files)
    else:
        assert [each.path for each in read_layer(pack(files))] == sorted(names)
