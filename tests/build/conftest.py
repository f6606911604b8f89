import os

import pytest
from tests.build import registries, wheels

from gangline.build.image_store import ImageStore
from gangline.signing.keys import signing_key
from gangline.spec.config.site import Site
from gangline.storage.open import open_store


@pytest.fixture(scope="session")
def registry_host(tmp_path_factory):
    with registries.serving(tmp_path_factory.mktemp("registry")) as host:
        yield host


@pytest.fixture
def index():
    with wheels.index() as served:
        yield served


@pytest.fixture
def office(tmp_path, index):
    environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], **index.environ}
    key = signing_key(Site(), environ)
    store = open_store(f"file:{tmp_path / 'store'}")
    return ImageStore(store=store, key=key, trusted={key.key_id: key.public}, environ=environ)
