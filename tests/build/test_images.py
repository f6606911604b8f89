"""Environment images: built once by key, signed, found again, read back file by file from a real registry."""

import json
import sys
import tarfile
import uuid
from dataclasses import replace

import pytest
from tests.build.wheels import lock_of, make_wheel

from gangline.build.builders.pip_layer import PYTHON_LABEL, PipLayer
from gangline.build.builders.recipe import make_recipe
from gangline.build.image_registry.reference import ImageReference
from gangline.build.image_registry.repository import ImageRepository
from gangline.build.image_store import record_base_image, verify_image
from gangline.build.images import build_image
from gangline.build.oci import ImageLayout, LayerMember, Platform, Settings
from gangline.errors import BuildError, ConfigError, IntegrityError
from gangline.storage.objects.blobs import put_blob

pytestmark = pytest.mark.tools
MINOR = f"{sys.version_info.major}.{sys.version_info.minor}"
SITE = f"opt/gangline/lib/python{MINOR}/site-packages"
COMMIT = "a" * 40
SPAM, EGGS = make_wheel("spam", "1.0", script=True), make_wheel("eggs", "2.1", body="x = 1\n")


@pytest.fixture
def base(registry_host, tmp_path):
    """A tiny base image in the registry, by digest."""
    name = ImageReference(registry_host, f"base/{uuid.uuid4().hex}", tag="1")
    layout = ImageLayout.create(tmp_path / "base")
    layer = layout.add_layer([LayerMember("etc/os-release", b"tiny\n")])
    settings = Settings(env={"PATH": "/usr/bin"}, labels={PYTHON_LABEL: f"/usr/bin/python{MINOR}"})
    image = layout.add_image([layer], settings=settings)
    ImageRepository.open(name, {}, named_by_site=True).push(layout, image, tag="1")
    return str(name.at(image.digest))


@pytest.fixture
def recipe(base, index):
    index.add(SPAM, EGGS)
    name = ImageReference.parse(base)
    return make_recipe(lock_of(SPAM, EGGS), base=base, image=f"{name.host}/env/{uuid.uuid4().hex}")


def build(recipe, office):
    return build_image(recipe, builder=PipLayer(), image_store=office, commit=COMMIT)


def pulled(built, office, folder):
    """Path to content (or link) of the last layer, and the image's config."""
    reference = ImageReference.parse(built.reference)
    registry = ImageRepository.open(reference, office.environ, named_by_site=True)
    _, image = registry.image(reference, Platform.here())
    layout = ImageLayout.create(folder)
    for each in image.layers:
        registry.fetch(each, layout.path(each))
    with tarfile.open(layout.path(image.layers[-1])) as tar:
        files = {
            each.name: each.linkname if each.issym() else tar.extractfile(each).read() if each.isreg() else None
            for each in tar
        }
        owners = {(each.uid, each.mode & 0o022) for each in tar if not each.issym()}
    return files, image, owners


def test_layer_holds_the_locked_wheels_and_gangline_on_the_bases_python(recipe, office, tmp_path):
    built = build(recipe, office)
    files, image, owners = pulled(built, office, tmp_path / "back")
    assert files["opt/gangline/bin/python"] == f"/usr/bin/python{MINOR}"
    assert files[f"{SITE}/spam/__init__.py"] == b"VERSION = '1.0'\n"
    assert files[f"{SITE}/eggs/__init__.py"] == b"VERSION = '2.1'\nx = 1\n"
    assert files[f"{SITE}/gangline/errors.py"].startswith(b'"""The error tree')
    assert not [path for path in files if "__pycache__" in path or path.endswith("/bin/spam")]
    assert b"bin/spam" not in files[f"{SITE}/spam-1.0.dist-info/RECORD"]
    assert owners == {(0, 0)}
    assert (image.user, image.env["PATH"]) == ("65532:65532", "/opt/gangline/bin:/usr/bin")
    assert len(image.layers) == 2


def test_a_second_run_builds_nothing(recipe, office, index):
    first = build(recipe, office)
    asked = len(index.asked)
    again = build(recipe, office)
    assert (again.reference, again.cached, again.seconds) == (first.reference, True, 0.0)
    assert len(index.asked) == asked
    assert not first.cached


def test_two_builds_of_one_recipe_give_one_digest(recipe, office):
    first = build(recipe, office)
    office.store.delete(f"images/{recipe.key}.json")
    assert build(recipe, office).reference == first.reference


def test_the_first_of_two_drivers_decides_for_both(recipe, office, monkeypatch):
    class Slow(PipLayer):
        def build(self, recipe, bench):
            first.append(build(recipe, office))
            return super().build(recipe, bench)

    first = []
    second = build_image(recipe, builder=Slow(), image_store=office, commit="b" * 40)
    assert second.reference == first[0].reference
    assert (second.provenance, second.cached) == (first[0].provenance, True)


def test_an_image_that_the_registry_lost_is_built_again(recipe, office):
    first = build(recipe, office)
    lost = replace(recipe, image=ImageReference(recipe.image.host, recipe.image.repository + "-moved"))
    again = build(lost, office)
    assert not again.cached
    assert again.digest == first.digest
    assert again.reference.startswith(str(lost.image))


def test_a_moved_tag_changes_nothing(recipe, office, tmp_path):
    first = build(recipe, office)
    layout = ImageLayout.create(tmp_path / "evil")
    evil = layout.add_image([layout.add_layer([LayerMember("evil")])])
    ImageRepository.open(recipe.image, {}, named_by_site=True).push(layout, evil, tag=recipe.tag)
    assert build(recipe, office).reference == first.reference


def test_bill_and_provenance_are_next_to_the_image(recipe, office):
    built = build(recipe, office)
    bill = json.loads(office.store.get(built.sbom).data)
    assert {(each["name"], each["version"]) for each in bill["components"]} == {("spam", "1.0"), ("eggs", "2.1")}
    assert bill["metadata"]["component"]["version"] == built.reference
    said = verify_image(built.reference, provenance=built.provenance, store=office.store, keys=office.trusted)
    assert said.startswith(built.digest[:19])
    assert "by layer for commit aaaaaaaa" in said


def test_missing_forged_and_foreign_provenance_is_refused(recipe, office):
    built = build(recipe, office)
    envelope = json.loads(office.store.get(built.provenance).data)
    forged = put_blob(office.store, json.dumps(envelope | {"payload": envelope["payload"][:-8] + "AAAAAAA="}).encode())
    other = f"{recipe.image}@sha256:{'0' * 64}"
    for image, provenance, keys in (
        (built.reference, forged, office.trusted),
        (other, built.provenance, office.trusted),
        (built.reference, built.provenance, {}),
        (built.reference, "", office.trusted),
    ):
        with pytest.raises(IntegrityError):
            verify_image(image, provenance=provenance, store=office.store, keys=keys)


def test_a_record_in_the_store_that_no_one_signed_is_refused(recipe, office):
    built = build(recipe, office)
    place = f"images/{recipe.key}.json"
    evil = office.store.get(place).data.replace(built.digest.encode(), b"sha256:" + b"0" * 64)
    office.store.put(place, evil)
    with pytest.raises(IntegrityError, match="provenance"):
        build(recipe, office)


def test_a_changed_wheel_stops_the_build_and_leaves_its_log(recipe, office, index):
    index.add((SPAM[0], make_wheel("spam", "1.0", body="import os\n")[1]))
    with pytest.raises(BuildError, match="spam") as refused:
        build(recipe, office)
    log = str(refused.value).rpartition("whole log: ")[2]
    assert b"DO NOT MATCH THE HASHES" in office.store.get(log).data
    assert ImageRepository.open(recipe.image, {}, named_by_site=True).resolve(recipe.tag) is None


def test_a_base_that_does_not_say_where_its_python_is_is_refused(recipe, office, tmp_path):
    layout = ImageLayout.create(tmp_path / "mute")
    image = layout.add_image([layout.add_layer([LayerMember("a")])])
    ImageRepository.open(recipe.base, {}, named_by_site=True).push(layout, image, tag="mute")
    with pytest.raises(ConfigError, match=PYTHON_LABEL):
        build(replace(recipe, base=recipe.base.at(image.digest)), office)


@pytest.mark.parametrize("user", [None, "0:0", "root", "gangline"])
def test_an_image_that_clusters_would_refuse_is_not_an_image(recipe, office, user, tmp_path):
    class Pushes:
        name = "test"

        def build(self, recipe, bench):
            layout = ImageLayout.create(bench.folder / "image")
            image = layout.add_image([layout.add_layer([LayerMember("a")])], settings=Settings(user=user))
            return ImageRepository.open(recipe.image, {}, named_by_site=True).push(layout, image, tag=recipe.tag).digest

    with pytest.raises(BuildError, match="clusters want a number"):
        build_image(recipe, builder=Pushes(), image_store=office, commit=COMMIT)
    assert office.store.get(f"images/{recipe.key}.json") is None


def test_a_base_as_it_is_is_vouched_for_and_not_touched(base, office):
    taken = record_base_image(base, image_store=office, commit=COMMIT)
    assert (taken.reference, taken.seconds, taken.builder) == (base, 0.0, "none")
    assert record_base_image(base, image_store=office, commit="b" * 40) == taken
    assert "by none" in verify_image(base, provenance=taken.provenance, store=office.store, keys=office.trusted)
