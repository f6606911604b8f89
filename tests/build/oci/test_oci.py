"""OCI images from members alone: the same bytes each time, read back as they were written, nothing taken on trust."""

import gzip
import hashlib
import json
import os
import subprocess
import sys
import tarfile
from dataclasses import replace

import pytest

from gangline.build.oci import Descriptor, ImageLayout, LayerMember, Platform, Settings, documents, members_of_folder
from gangline.errors import BuildError, IntegrityError

AMD = Platform("linux", "amd64")
SETTINGS = Settings(user="65532:65532", env={"PATH": "/usr/bin"}, entrypoint=("/run",), labels={"a": "b"})


def small(folder, *, compress=False):
    layout = ImageLayout.create(folder)
    layer = layout.add_layer(
        [
            LayerMember("opt", folder=True, mode=0o755),
            LayerMember("opt/run", data=b"#!", mode=0o755),
            LayerMember("run", link="opt/run"),
        ],
        compress=compress,
    )
    return layout, layout.add_image([layer], settings=SETTINGS, platform=AMD)


def layer_file(layout, image):
    return layout.path(layout.image(image).layers[0])


@pytest.mark.parametrize("compress", [False, True])
def test_same_members_give_the_same_bytes(tmp_path, compress):
    images = [small(tmp_path / name, compress=compress)[1] for name in ("a", "b")]
    assert images[0] == images[1]
    blobs = [{path.name: path.read_bytes() for path in (tmp_path / name / "blobs/sha256").iterdir()} for name in "ab"]
    assert blobs[0] == blobs[1]


def test_layer_holds_what_was_asked_with_its_modes(tmp_path):
    with tarfile.open(layer_file(*small(tmp_path / "layout"))) as tar:
        seen = [(each.name, each.type, each.mode, each.uid, each.mtime, each.linkname) for each in tar]
    assert seen == [
        ("opt", tarfile.DIRTYPE, 0o755, 0, 0, ""),
        ("opt/run", tarfile.REGTYPE, 0o755, 0, 0, ""),
        ("run", tarfile.SYMTYPE, 0o644, 0, 0, "opt/run"),
    ]


def test_diff_id_is_of_the_uncompressed_layer(tmp_path):
    plain, (packed, image) = small(tmp_path / "plain"), small(tmp_path / "packed", compress=True)
    raw = gzip.decompress(layer_file(packed, image).read_bytes())
    diff_id = f"sha256:{hashlib.sha256(raw).hexdigest()}"
    assert layer_file(*plain).name == diff_id.removeprefix("sha256:")
    assert packed.image(image).diff_ids == (diff_id,)


def test_folder_becomes_a_layer_with_its_links_and_without_what_is_excluded(tmp_path):
    root = tmp_path / "rootfs"
    (root / "usr/bin").mkdir(parents=True)
    (root / "dev").mkdir()
    os.mkfifo(root / "dev/pipe")
    (root / "usr/bin/tool").write_bytes(b"x")
    (root / "usr/bin/tool").chmod(0o4755)
    (root / "bin").symlink_to("usr/bin")
    seen = {each.path: each for each in members_of_folder(root, exclude=("dev/*",))}
    assert sorted(seen) == ["bin", "dev", "usr", "usr/bin", "usr/bin/tool"]
    assert seen["bin"].link == "usr/bin"
    assert seen["usr/bin/tool"].mode == 0o4755
    with pytest.raises(BuildError, match="dev/pipe"):
        list(members_of_folder(root))


def test_folder_is_put_below_a_path_without_its_parents(tmp_path):
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg/a.py").write_text("a")
    assert [each.path for each in members_of_folder(tmp_path / "pkg", at="opt/pkg")] == ["opt/pkg", "opt/pkg/a.py"]


def test_new_layer_continues_top_and_settings_over_those_of_the_base(tmp_path):
    layout, standing = small(tmp_path / "layout")
    base = layout.image(standing)
    base.config["config"]["StopSignal"] = "SIGINT"
    added = layout.add_layer([LayerMember("new", data=b"n")])
    image = layout.image(layout.add_image([added], base=base, settings=Settings(env={"PATH": "/opt", "B": "2"})))
    assert [each.digest for each in image.layers] == [base.layers[0].digest, added.descriptor.digest]
    assert image.env == {"PATH": "/opt", "B": "2"}
    assert (image.user, image.config["config"]["StopSignal"]) == ("65532:65532", "SIGINT")
    assert image.platform == AMD


def test_layers_of_a_docker_base_are_called_as_oci_calls_them(tmp_path):
    layout, standing = small(tmp_path / "layout", compress=True)
    base = layout.image(standing)
    docker = [replace(each, media_type="application/vnd.docker.image.rootfs.diff.tar.gzip") for each in base.layers]
    image = layout.add_image([layout.add_layer([LayerMember("new")])], base=replace(base, layers=tuple(docker)))
    assert [each.media_type for each in layout.image(image).layers] == [documents.LAYER_GZIP, documents.LAYER]


def test_a_changed_document_is_refused_before_it_is_parsed(tmp_path):
    layout, image = small(tmp_path / "layout")
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
def test_what_is_not_a_manifest_is_refused(data):
    with pytest.raises(IntegrityError):
        documents.parse_manifest(data)


@pytest.mark.parametrize("path", ["", "/etc/x", "../x", "a/../b", "./a", "a//b", "a/"])
def test_paths_that_are_not_plain_are_refused(path):
    with pytest.raises(BuildError, match="plain relative path"):
        LayerMember(path)


def test_a_path_given_twice_is_refused(tmp_path):
    with pytest.raises(BuildError, match="twice"):
        ImageLayout.create(tmp_path / "l").add_layer([LayerMember("a"), LayerMember("a")])
    assert not list((tmp_path / "l/blobs/sha256").iterdir())


def test_another_process_with_another_hash_seed_writes_the_same_bytes(tmp_path):
    program = (
        "import sys, pathlib; from gangline.build.oci import *;"
        "l = ImageLayout.create(pathlib.Path(sys.argv[1]));"
        "layer = l.add_layer([LayerMember('a', b'1')]);"
        "print(l.add_image([layer], settings=Settings(env={'B': '1', 'A': '2'})).digest)"
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
