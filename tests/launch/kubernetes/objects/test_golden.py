"""Objects as they are sent, one file a case: read in review, valid for every Kubernetes from the floor up."""

import kubernetes_validate
import pytest
import yaml
from tests.launch.kubernetes.golden import FOLDER, drawn

TEXTS = drawn()
VERSIONS = ("1.31", "1.34", "1.37")
STOCK = [
    (name, thing["kind"], thing)
    for name, text in TEXTS.items()
    for thing in yaml.load_all(text, Loader=yaml.CSafeLoader)
    if not any(name in thing["apiVersion"] for name in ("trainer", "jobset", "volcano"))
]


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_objects_are_those_of_the_golden_file(name):
    wanted = (FOLDER / name).read_text("utf-8")
    assert TEXTS[name] == wanted, "read the difference; if it is meant: python -m tests.launch.kubernetes.golden"


def test_no_golden_file_is_left_over():
    assert {path.name for path in FOLDER.iterdir()} == set(TEXTS)


def test_rendering_again_gives_the_same_bytes():
    assert drawn() == TEXTS


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("name", "kind", "thing"), STOCK, ids=[f"{name}-{kind}" for name, kind, _ in STOCK])
def test_objects_hold_no_field_that_kubernetes_does_not_know(name, kind, thing, version):
    assert kubernetes_validate.validate(thing, version, strict=True) == version
