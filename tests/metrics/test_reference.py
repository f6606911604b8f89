"""The page of all series is what the catalogue says."""

from pathlib import Path

from gangline.metrics.catalogue import CATALOGUE
from gangline.metrics.reference import PAGE, main, reference

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "reference"


def test_the_page_is_current():
    """To update: python -m gangline.metrics.reference docs/reference."""
    assert (FOLDER / PAGE).read_text("utf-8") == reference()


def test_every_series_stands_on_it_once(tmp_path):
    main(tmp_path)
    text = (tmp_path / PAGE).read_text("utf-8")
    for name in CATALOGUE:
        assert text.count(f"| `{name}` |") == 1
