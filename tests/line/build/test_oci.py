"""OCI images from members alone: the same bytes each time, read back as they were written, nothing taken on trust."""

import gzip
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
from dataclasses import replace

import pytest

from gangline.errors import BuildError, IntegrityError
from gangline.line.build.oci import Descriptor, Layout, Member, Platform, Settings, documents, from_folder

AMD = Platform("linux", "amd64")
SETTINGS = Settings(user="65532:65532", env={"PATH": "/usr/bin"}, entrypoint=("/run",), labels={"a": "b"})


def small(folder, *, compress=False):
    layout = Layout.create(folder)
    layer = layout.add_layer(
        [
            Member("opt", folder=True, mode=0o755),
            Member("opt/run", data=b"#!", mode=0o755),
            Member("run", link="opt/run"),
        ],
        compress=compress,
    )
    image = layout.add_image([layer], settings=SETTINGS, platform=AMD)
    layout.tag("rig.local/small:1", image)
    return layout


def only_layer(layout):
    (image,) = layout.images()
    return layout.image(image).layers[0]


@pytest.mark.parametrize("compress", [False, True])
def test_same_members_give_the_same_archive(tmp_path, compress):
    for name in ("a", "b"):
        small(tmp_path / name, compress=compress).archive(tmp_path / f"{name}.tar")
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()


def test_layer_holds_what_was_asked_with_its_modes(tmp_path):
    layout = small(tmp_path / "layout")
    with tarfile.open(layout.path(only_layer(layout))) as tar:
        seen = [(each.name, each.type, each.mode, each.uid, each.mtime, each.linkname) for each in tar]
    assert seen == [
        ("opt", tarfile.DIRTYPE, 0o755, 0, 0, ""),
        ("opt/run", tarfile.REGTYPE, 0o755, 0, 0, ""),
        ("run", tarfile.SYMTYPE, 0o644, 0, 0, "opt/run"),
    ]


def test_diff_id_is_of_the_uncompressed_layer(tmp_path):
    plain, packed = small(tmp_path / "plain"), small(tmp_path / "packed", compress=True)
    raw = gzip.decompress(packed.path(only_layer(packed)).read_bytes())
    diff_id = f"sha256:{hashlib.sha256(raw).hexdigest()}"
    assert only_layer(plain).digest == diff_id
    assert packed.image(packed.images()[0]).diff_ids == (diff_id,)


def test_folder_becomes_a_layer_with_its_links_and_without_what_is_excluded(tmp_path):
    root = tmp_path / "rootfs"
    (root / "usr/bin").mkdir(parents=True)
    (root / "dev").mkdir()
    os.mkfifo(root / "dev/pipe")
    (root / "usr/bin/tool").write_bytes(b"x")
    (root / "usr/bin/tool").chmod(0o4755)
    (root / "bin").symlink_to("usr/bin")
    seen = {each.path: each for each in from_folder(root, exclude=("dev/*",))}
    assert sorted(seen) == ["bin", "dev", "usr", "usr/bin", "usr/bin/tool"]
    assert seen["bin"].link == "usr/bin"
    assert seen["usr/bin/tool"].mode == 0o4755
    with pytest.raises(BuildError, match="dev/pipe"):
        list(from_folder(root))


def test_folder_is_put_below_a_path_without_its_parents(tmp_path):
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg/a.py").write_text("a")
    assert [each.path for each in from_folder(tmp_path / "pkg", at="opt/pkg")] == ["opt/pkg", "opt/pkg/a.py"]


def test_new_layer_goes_on_top_and_settings_over_those_of_the_base(tmp_path):
    layout = small(tmp_path / "layout")
    base = layout.image(layout.images()[0])
    base.config["config"]["StopSignal"] = "SIGINT"
    added = layout.add_layer([Member("new", data=b"n")])
    image = layout.image(layout.add_image([added], base=base, settings=Settings(env={"PATH": "/opt", "B": "2"})))
    assert [each.digest for each in image.layers] == [base.layers[0].digest, added.descriptor.digest]
    assert image.env == {"PATH": "/opt", "B": "2"}
    assert (image.user, image.config["config"]["StopSignal"]) == ("65532:65532", "SIGINT")
    assert image.platform == AMD


def test_layers_of_a_docker_base_are_called_as_oci_calls_them(tmp_path):
    layout = small(tmp_path / "layout", compress=True)
    base = layout.image(layout.images()[0])
    docker = [replace(each, media_type="application/vnd.docker.image.rootfs.diff.tar.gzip") for each in base.layers]
    image = layout.add_image([layout.add_layer([Member("new")])], base=replace(base, layers=tuple(docker)))
    assert [each.media_type for each in layout.image(image).layers] == [documents.LAYER_GZIP, documents.LAYER]


def test_an_archive_is_read_back_as_it_was(tmp_path):
    layout = small(tmp_path / "layout")
    layout.archive(tmp_path / "one.tar")
    again = Layout.from_archive(tmp_path / "one.tar", tmp_path / "again")
    again.archive(tmp_path / "two.tar")
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()
    assert again.images()[0].annotations["io.containerd.image.name"] == "rig.local/small:1"


def test_a_name_is_of_one_image(tmp_path):
    layout = small(tmp_path / "layout")
    other = layout.add_image([layout.add_layer([Member("other")])], platform=AMD)
    layout.tag("rig.local/small:1", other)
    assert [each.digest for each in layout.images()] == [other.digest]


def test_archive_with_a_changed_blob_is_refused(tmp_path):
    layout = small(tmp_path / "layout")
    layout.path(only_layer(layout)).write_bytes(b"other")
    layout.archive(tmp_path / "bad.tar")
    with pytest.raises(IntegrityError, match="does not have the digest"):
        Layout.from_archive(tmp_path / "bad.tar", tmp_path / "again")


def test_archive_cannot_write_beside_the_layout(tmp_path):
    with tarfile.open(tmp_path / "bad.tar", "w") as tar:
        for name in ("../out", "/etc/gangline-out", f"blobs/sha256/../{'0' * 64}"):
            tar.addfile(tarfile.TarInfo(name), io.BytesIO())
    Layout.from_archive(tmp_path / "bad.tar", tmp_path / "again")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again", "bad.tar"]


def test_a_changed_document_is_refused_before_it_is_parsed(tmp_path):
    layout = small(tmp_path / "layout")
    (image,) = layout.images()
    layout.path(image).write_bytes(b"{}")
    with pytest.raises(IntegrityError, match="digest"):
        layout.image(image)


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"{", b"[" * 100_000, b'{"schemaVersion":1}', b'{"schemaVersion":2,"layers":[]}',
     b'{"schemaVersion":2,"layers":[{"digest":"sha256:../../etc","size":1}]}',
     b'{"schemaVersion":2,"layers":[{"digest":"sha256:' + b"0" * 64 + b'","size":-1}]}',
     b'{"schemaVersion":2,"layers":[{"digest":"sha256:' + b"0" * 64 + b'","size":true}]}'],
)  # fmt: skip
def test_what_is_no_manifest_is_refused(data):
    with pytest.raises(IntegrityError):
        documents.parse_manifest(data)


@pytest.mark.parametrize("path", ["", "/etc/x", "../x", "a/../b", "./a", "a//b", "a/"])
def test_paths_that_are_not_plain_are_refused(path):
    with pytest.raises(BuildError, match="plain relative path"):
        Member(path)


def test_a_path_given_twice_is_refused(tmp_path):
    with pytest.raises(BuildError, match="twice"):
        Layout.create(tmp_path / "l").add_layer([Member("a"), Member("a")])
    assert not list((tmp_path / "l/blobs/sha256").iterdir())


def test_another_process_with_another_hash_seed_writes_the_same_bytes(tmp_path):
    program = (
        "import sys, pathlib; from gangline.line.build.oci import *;"
        "l = Layout.create(pathlib.Path(sys.argv[1]));"
        "print(l.add_image([l.add_layer([Member('a', b'1')])], settings=Settings(env={'B': '1', 'A': '2'})).digest)"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", program, str(tmp_path / seed)], env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True, check=True, text=True,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(digests) == 1


def test_descriptor_reads_what_it_writes():
    one = Descriptor(media_type=documents.LAYER, digest="sha256:" + "a" * 64, size_bytes=3, platform=AMD,
                     annotations={"n": "v"})  # fmt: skip
    assert documents.descriptor(json.loads(json.dumps(one.to_plain()))) == one
