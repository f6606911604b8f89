"""Images pushed to and pulled from a real registry."""

import base64
import json
import uuid
from dataclasses import replace

import pytest
from tests.build import registries

from gangline.build.image_registry import repository as module
from gangline.build.image_registry.reference import ImageReference
from gangline.build.image_registry.repository import ImageRepository
from gangline.build.oci import ImageLayout, LayerMember, Platform, Settings
from gangline.build.oci.documents import parse_manifest
from gangline.errors import ConfigError, IntegrityError

pytestmark = pytest.mark.tools
AMD = Platform("linux", "amd64")


@pytest.fixture
def registry(registry_host, tmp_path):
    return ImageRepository.open(
        ImageReference(registry_host, f"team/{uuid.uuid4().hex}"), {"HOME": str(tmp_path)}, named_by_site=True
    )


def make(folder, text=b"hello", *, compress=True):
    layout = ImageLayout.create(folder)
    layer = layout.add_layer([LayerMember("etc/motd", text)], compress=compress)
    return layout, layout.add_image([layer], settings=Settings(user="1:1"), platform=AMD)


def test_a_pushed_image_comes_back_byte_for_byte(registry, tmp_path):
    layout, image = make(tmp_path / "out")
    registry.push(layout, image, tag="one")
    assert registry.resolve("one").digest == image.digest
    _, read = registry.image(ImageReference(registry.host, registry.repository, digest=image.digest), AMD)
    assert read.user == "1:1"
    config, layers = parse_manifest(layout.read(image))
    for number, blob in enumerate((config, *layers)):
        registry.fetch(blob, tmp_path / str(number))
        assert (tmp_path / str(number)).read_bytes() == layout.path(blob).read_bytes()


def test_large_blobs_go_in_chunks(registry, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "CHUNK_BYTES", 3000)
    layout, image = make(tmp_path / "out", bytes(range(256)) * 40, compress=False)
    registry.push(layout, image, tag="chunks")
    (layer,) = layout.image(image).layers
    assert layer.size_bytes > 3 * 3000
    registry.fetch(layer, tmp_path / "layer")
    assert (tmp_path / "layer").read_bytes() == layout.path(layer).read_bytes()


def test_what_was_never_pushed_is_not_there(registry):
    assert registry.resolve("nothing") is None
    with pytest.raises(ConfigError, match="found none of that name"):
        registry.image(ImageReference(registry.host, registry.repository, tag="nothing"), AMD)


def test_layers_of_a_base_on_the_same_host_are_mounted_and_not_carried(registry, tmp_path, monkeypatch):
    layout, image = make(tmp_path / "base")
    registry.push(layout, image, tag="base")
    other = ImageRepository(ImageReference(registry.host, registry.repository + "-child"), registry._http)
    monkeypatch.setattr(ImageRepository, "fetch", lambda *_: pytest.fail("a layer was carried"))
    child = ImageLayout.create(tmp_path / "child")
    made = child.add_image([child.add_layer([LayerMember("new")])], base=layout.image(image))
    other.push(child, made, tag="child", base=registry)
    assert all(other.has(layer) for layer in child.image(made).layers)


def test_layers_of_a_base_elsewhere_are_copied(registry, tmp_path):
    layout, image = make(tmp_path / "base")
    registry.push(layout, image, tag="base")
    other = ImageRepository(
        ImageReference(registry.host.replace("127.0.0.1", "localhost"), "copy/child"), registry._http
    )
    child = ImageLayout.create(tmp_path / "child")
    made = child.add_image([child.add_layer([LayerMember("new")])], base=layout.image(image))
    other.push(child, made, tag="child", base=registry)
    assert all(other.has(layer) for layer in child.image(made).layers)


def test_a_blob_with_other_bytes_than_its_digest_says_is_never_left_behind(registry, tmp_path):
    layout, image = make(tmp_path / "out")
    registry.push(layout, image, tag="one")
    (layer,) = layout.image(image).layers
    with pytest.raises(IntegrityError):
        registry.fetch(replace(layer, size_bytes=layer.size_bytes - 1), tmp_path / "short")
    with pytest.raises(IntegrityError):
        registry.fetch(replace(layer, size_bytes=layer.size_bytes + 1), tmp_path / "long")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]


def test_an_image_for_another_machine_is_refused(registry, tmp_path):
    layout, image = make(tmp_path / "out")
    registry.push(layout, image, tag="one")
    with pytest.raises(ConfigError, match="linux/arm64"):
        registry.image(ImageReference(registry.host, registry.repository, tag="one"), Platform("linux", "arm64"))


def test_a_registry_with_a_login_takes_the_one_of_dockers_configuration(tmp_path):
    (tmp_path / "htpasswd").write_text("ana:$2y$05$abcdefghijklmnopqrstuuBxclKLdj1BwjB/nX58d9CPRp9lN.e.a\n")
    auth = f"auth: {{htpasswd: {{realm: test, path: {tmp_path}/htpasswd}}}}\n"
    with registries.serving(tmp_path, auth=auth) as host:
        environ = {"HOME": str(tmp_path)}
        layout, image = make(tmp_path / "out")
        with pytest.raises(ConfigError, match=f"docker login {host}"):
            ImageRepository.open(ImageReference(host, "team/a"), environ, named_by_site=True).push(
                layout, image, tag="one"
            )
        (tmp_path / ".docker").mkdir()
        entry = base64.b64encode(b"ana:pw-canary").decode()
        (tmp_path / ".docker/config.json").write_text(json.dumps({"auths": {host: {"auth": entry}}}))
        registry = ImageRepository.open(ImageReference(host, "team/a"), environ, named_by_site=True)
        registry.push(layout, image, tag="one")
        assert registry.resolve("one").digest == image.digest
