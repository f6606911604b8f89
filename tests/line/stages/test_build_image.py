"""The build stage of runs whose ranks are pods: an image once a lock, a code layer once a commit."""

import os
import re
import sys
import uuid
from dataclasses import replace

import pytest
from tests.build import registries, wheels
from tests.build.wheels import lock_of, make_wheel
from tests.line import repositories

from gangline.build.builders.pip_layer import PYTHON_LABEL
from gangline.build.image_registry.reference import ImageReference
from gangline.build.image_registry.repository import ImageRepository
from gangline.build.oci import ImageLayout, LayerMember, Settings
from gangline.line.run import driver
from gangline.spec.config.site import RegistryTable, Site
from gangline.spec.run_flags import stage

pytestmark = pytest.mark.tools
SPAM, EGGS = make_wheel("spam", "1.0"), make_wheel("eggs", "1.0")


@pytest.fixture
def clustered(workspace, tmp_path, monkeypatch):
    """The workspace's site builds by `layer` into a real registry; wheels come from an index on loopback."""
    with registries.serving(tmp_path) as host, wheels.index() as index:
        index.add(SPAM, EGGS)
        name, layout = ImageReference(host, f"base/{uuid.uuid4().hex}"), ImageLayout.create(tmp_path / "base")
        python = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
        layer = layout.add_layer([LayerMember("etc/os-release", b"tiny\n")])
        image = layout.add_image([layer], settings=Settings(labels={PYTHON_LABEL: python}))
        ImageRepository.open(name, {}, named_by_site=True).push(layout, image, tag="1")
        table = RegistryTable(image=f"{host}/env/cheap", base=str(name.at(image.digest)), builder="layer")
        workspace.site = replace(Site(), registry=table)
        workspace.environ |= {"PATH": os.environ["PATH"], **index.environ}
        monkeypatch.setattr(driver, "open_launcher", lambda *_, **__: None)  # nothing is submitted before build is done
        line = repositories.LINE + '[env]\nlock = "lock.txt"\n'
        repositories.commit(workspace.repo, {"line.toml": line, "lock.txt": lock_of(SPAM).decode()})
        yield workspace


def built(workspace):
    record = workspace.run(target="kubernetes", until="build")
    return record, stage(record, "build")


def test_a_changed_file_of_the_code_builds_nothing_and_a_changed_lock_does(clustered):
    first, build = built(clustered)
    digest = first.inputs.image.partition("@")[2]
    assert re.search(r"\(image env-[0-9a-f]{12} built by layer in \d+\.\d s\) · code layer ", build.message)
    assert first.inputs.image.startswith(f"{clustered.site.registry.image}@sha256:")
    assert [each.kind for each in first.artifacts] == ["code", "image-provenance", "image-sbom"]
    assert b"spam" in clustered.store.get(build.outputs["image_log"]).data

    repositories.commit(clustered.repo, {"answer.py": repositories.PROGRAM + "# changed\n"})
    second, build = built(clustered)
    tag = f"env-{second.inputs.environment[:12]}"
    assert build.message.startswith(
        f"environment {second.inputs.environment[:8]} (lock unchanged: image {tag} reused, 0 s) · code layer "
    )
    assert second.inputs.image == first.inputs.image
    assert second.inputs.code != first.inputs.code
    assert (
        ImageRepository.open(ImageReference.parse(second.inputs.image), {}, named_by_site=True).resolve(tag).digest
        == digest
    )

    repositories.commit(clustered.repo, {"lock.txt": lock_of(SPAM, EGGS).decode()})
    third, _ = built(clustered)
    assert third.inputs.image != first.inputs.image
    assert third.inputs.environment != first.inputs.environment


def test_a_run_of_this_machine_installs_its_lock_and_builds_no_image(clustered):
    record = clustered.run(until="build")
    assert record.inputs.image is None
    assert "(lock.txt: 1 package, Python 3" in stage(record, "build").message
