"""Every surface, byte for byte as it was last read in review."""

import pytest
from tests.report.golden import FOLDER, drawn

TEXTS = drawn()


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_surface_is_as_reviewed(name):
    wanted = (FOLDER / name).read_text("utf-8")
    assert TEXTS[name] == wanted, "read the difference; if it is meant: python -m tests.report.golden"


def test_no_golden_file_is_left_over():
    assert {path.name for path in FOLDER.iterdir()} == set(TEXTS)
