"""Writes the golden objects: `python -m tests.launch.kubernetes.golden`, then read the difference in review."""

from pathlib import Path

from gangline.launch.kubernetes.emit import emit
from tests.launch.kubernetes.gangs import cases

FOLDER = Path(__file__).parents[2] / "golden" / "kubernetes"


def drawn():
    """File name to text."""
    return {f"{name}.yaml": emit(kind, setting) for name, (kind, setting) in cases().items()}


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in drawn().items():
        (FOLDER / name).write_text(text, "utf-8")
