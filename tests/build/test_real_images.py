"""Whole images on a real Debian base, built by each builder that is here, and run as the numeric user they name."""

import os
import shutil
import subprocess

import pytest
from tests.build import registries, wheels
from tests.build.wheels import lock_of, make_wheel

from gangline.build.builders import open_builder
from gangline.build.builders.pip_layer import MINOR, PYTHON_LABEL
from gangline.build.builders.recipe import make_recipe
from gangline.build.image_registry.reference import ImageReference
from gangline.build.image_registry.repository import ImageRepository
from gangline.build.image_store import ImageStore
from gangline.build.images import build_image
from gangline.build.oci import ImageLayout, Settings, members_of_folder
from gangline.signing.keys import signing_key
from gangline.spec.config.site import Site
from gangline.storage.open import open_store

pytestmark = [pytest.mark.slow, pytest.mark.tools]
SPAM = make_wheel("spam", "1.0", script=True)
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
UNWANTED = ("dev/*", "proc/*", "sys/*", "var/cache/apt/*", "var/lib/apt/lists/*")
SUITES = {"3.11": "bookworm", "3.13": "trixie"}
"""Debian whose own Python is of that version."""


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    with registries.serving(tmp_path_factory.mktemp("registry")) as host:
        yield host


@pytest.fixture(scope="module")
def base(host, tmp_path_factory):
    """Debian's smallest with a Python that makes virtual environments, by digest."""
    if os.geteuid() or shutil.which("debootstrap") is None or MINOR not in SUITES:
        pytest.skip(f"needs root and debootstrap, and a Debian with Python {MINOR}")
    folder = tmp_path_factory.mktemp("base")
    command = [
        "debootstrap",
        "--variant=minbase",
        "--include=python3,python3-venv",
        SUITES[MINOR],
        str(folder / "root"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"needs a mirror of Debian: {done.stdout[-300:]}")
    layout = ImageLayout.create(folder / "layout")
    layer = layout.add_layer(members_of_folder(folder / "root", exclude=UNWANTED, owner=None), compress=True)
    settings = Settings(env={"PATH": PATH}, labels={PYTHON_LABEL: f"/usr/bin/python{MINOR}"})
    name = ImageReference(host, "base/python")
    digest = (
        ImageRepository.open(name, {}, named_by_site=True)
        .push(layout, layout.add_image([layer], settings=settings), tag="1")
        .digest
    )
    return str(name.at(digest))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["layer", "buildah"])
def test_an_image_runs_the_lock_and_gangline_as_its_numeric_user(name, host, base, tmp_path):
    if name != "layer" and shutil.which(name) is None:
        pytest.skip(f"needs {name}: apt-get install {name}")
    with wheels.index() as index:
        index.add(SPAM)
        environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], **index.environ}
        key = signing_key(Site(), environ)
        store = open_store(f"file:{tmp_path / 'store'}")
        office = ImageStore(store=store, key=key, trusted={key.key_id: key.public}, environ=environ)
        recipe = make_recipe(lock_of(SPAM), base=base, image=f"{host}/env/{name}")
        try:
            built = build_image(recipe, builder=open_builder(name, environ), image_store=office, commit="a" * 40)
        finally:
            if name == "buildah":  # which keeps its bases for the next build
                subprocess.run(["buildah", "rmi", "--force", base], check=False, capture_output=True)
    root, env = unpacked(built.reference, recipe.platform, tmp_path)
    program = "import os, sys, spam, gangline.keeper.main; print(sys.prefix, spam.VERSION, os.getuid())"
    command = ["chroot", "--userspec=65532:65532", str(root), "/usr/bin/env", "-i", *env, "python", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["/opt/gangline", "1.0", "65532"], done.stderr


def unpacked(reference, platform, folder):
    """The image's layers over each other, and its environment."""
    name = ImageReference.parse(reference)
    registry = ImageRepository.open(name, {}, named_by_site=True)
    _, image = registry.image(name, platform)
    layout = ImageLayout.create(folder / "pulled")
    for each in image.layers:
        registry.fetch(each, layout.path(each))
    root = folder / "root"
    root.mkdir()
    for layer in image.layers:
        subprocess.run(["tar", "-xpf", layout.path(layer), "-C", root], check=True)
    return root, [f"{name}={value}" for name, value in image.env.items()]
