"""Images as bytes: the same files give the same digest, and what is known there is not sent."""

import io
import json
import os
import tarfile
from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st
from tests.cluster.images.archive import Entry, Image, write_layer

FILES = (
    Entry(name="a/b/program", data=b"#!", mode=0o755),
    Entry(name="etc/hosts", data=b""),
    Entry(name="tmp", mode=0o777),
)


def layer(path, *entries):
    return write_layer(path, entries or FILES)


def members(archive):
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        return {each.name: opened.extractfile(each).read() for each in opened if each.isfile()}


def written(image, **options):
    target = io.BytesIO()
    image.write(target, **options)
    return target.getvalue()


@given(order=st.permutations(FILES))
def test_order_does_not_matter(order, tmp_path_factory):
    folder = tmp_path_factory.mktemp("layers")
    assert layer(folder / "one", *order).digest == layer(folder / "two").digest


def test_time_of_a_file_does_not_matter(tmp_path):
    source = tmp_path / "file"
    source.write_text("text")
    first = layer(tmp_path / "one", Entry(name="file", source=source))
    os.utime(source, (1, 1))
    assert layer(tmp_path / "two", Entry(name="file", source=source)).digest == first.digest


def test_everything_in_a_layer_belongs_to_root_and_parents_come_first(tmp_path):
    with tarfile.open(layer(tmp_path / "layer").path) as opened:
        found = opened.getmembers()
    assert {(each.uid, each.gid, each.mtime) for each in found} == {(0, 0, 0)}
    assert [each.name for each in found] == ["a", "a/b", "a/b/program", "etc", "etc/hosts", "tmp"]
    assert {each.name: each.mode for each in found}["tmp"] == 0o777


def test_reference_names_the_manifest_in_the_archive(tmp_path):
    image = Image(name="test/image", layers=(layer(tmp_path / "layer"),), user="65532")
    found = members(written(image))
    index = json.loads(found["index.json"])["manifests"][0]
    manifest = found[f"blobs/{index['digest'].replace(':', '/')}"]
    assert image.reference == f"test/image@sha256:{sha256(manifest).hexdigest()}"
    assert index["annotations"]["io.containerd.image.name"] == image.reference


def test_each_blob_is_what_its_name_says(tmp_path):
    found = members(written(Image(name="test/image", layers=(layer(tmp_path / "layer"),))))
    blobs = {name.rpartition("/")[2]: data for name, data in found.items() if name.startswith("blobs/")}
    assert len(blobs) == 3
    assert {name: sha256(data).hexdigest() for name, data in blobs.items()} == {name: name for name in blobs}


def test_layers_that_are_known_are_left_out_and_change_no_digest(tmp_path):
    lower, upper = layer(tmp_path / "lower"), layer(tmp_path / "upper", Entry(name="code", data=b"1"))
    image = Image(name="test/image", layers=(lower, upper))
    thin = written(image, without=frozenset({lower.digest}))
    assert len(thin) < len(written(image))
    assert f"blobs/{lower.digest.replace(':', '/')}" not in members(thin)
    assert members(thin)["index.json"] == members(written(image))["index.json"]
