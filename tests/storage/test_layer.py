"""Code layers: what is laid out, and what is refused before it is."""

import io
import tarfile
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.errors import IntegrityError, StorageError
from gangline.storage.blobs import put_blob
from gangline.storage.layer import fetch_layer, unpack
from gangline.storage.open import open_store


def tar_of(*members):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for member, data in members:
            tar.addfile(member, io.BytesIO(data))
    return out.getvalue()


def member(name, data=b"x", **fields):
    info = tarfile.TarInfo(name)
    info.size = len(data) if fields.get("type", tarfile.REGTYPE) == tarfile.REGTYPE else 0
    for field, value in fields.items():
        setattr(info, field, value)
    return info, data


def test_layer_is_laid_out_with_executables_only_where_they_were(tmp_path):
    store = open_store(f"file:{tmp_path / 'store'}")
    key = put_blob(store, tar_of(member("model.py"), member("bin/go.sh", mode=0o4777)))
    assert fetch_layer(store, key, tmp_path / "code") == 2
    assert (tmp_path / "code/model.py").stat().st_mode & 0o7777 == 0o644
    assert (tmp_path / "code/bin/go.sh").stat().st_mode & 0o7777 == 0o755
    with pytest.raises(StorageError, match="not there"):
        fetch_layer(store, "blobs/sha256/" + "0" * 64, tmp_path / "other")


@pytest.mark.parametrize(
    "members",
    [
        [member("../out")],
        [member("/etc/passwd")],
        [member("a/../../out")],
        [member("a\\b")],
        [member("./a")],
        [member("a//b")],
        [member("a" * 901)],
        [member("link", type=tarfile.SYMTYPE, linkname="/etc")],
        [member("hard", type=tarfile.LNKTYPE, linkname="model.py")],
        [member("device", type=tarfile.CHRTYPE)],
        [member("pipe", type=tarfile.FIFOTYPE)],
        [member("folder", type=tarfile.DIRTYPE)],
        [member("a"), member("a")],
        [member("Model.py"), member("model.py")],
        [member("a"), member("a/b")],
    ],
)
def test_anything_but_plain_files_below_the_folder_is_refused(tmp_path, members):
    with pytest.raises(IntegrityError):
        unpack(tar_of(*members), tmp_path / "code")
    assert [path for path in tmp_path.iterdir() if path.name != "code"] == []


def test_cut_off_and_compressed_layers_are_refused(tmp_path):
    with pytest.raises(IntegrityError):
        unpack(tar_of(member("model.py", b"x" * 5000))[:2048], tmp_path / "cut")
    with pytest.raises(IntegrityError):
        unpack(b"\x1f\x8b" + b"0" * 600, tmp_path / "zipped")


def test_layer_that_claims_too_much_is_refused_before_it_is_read(tmp_path):
    huge = tarfile.TarInfo("huge")
    huge.size = 65 << 20
    with pytest.raises(IntegrityError, match="more than"):
        unpack(huge.tobuf() + b"\0" * 1024, tmp_path / "code")


@given(data=st.binary(max_size=3000))
def test_no_bytes_do_anything_but_unpack_or_be_refused(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("layer")
    with suppress(IntegrityError):
        unpack(data, folder / "code")
    assert {path.name for path in folder.iterdir()} <= {"code"}
