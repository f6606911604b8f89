"""Writes the golden objects: `python -m tests.launch.kubernetes.golden`, then read the difference in review."""

from pathlib import Path

from tests.launch.kubernetes.gangs import cases, setting, shared_cases

from gangline.launch.kubernetes.objects.manifest import render_runtime_yaml, render_yaml

FOLDER = Path(__file__).parents[2] / "golden" / "kubernetes"


def drawn():
    """File name to text."""
    texts = {f"{name}.yaml": render_yaml(kind, given) for name, (kind, given) in (cases() | shared_cases()).items()}
    return texts | {"shared-runtime.yaml": render_runtime_yaml(setting(), "gangline")}


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in drawn().items():
        (FOLDER / name).write_text(text, "utf-8")
