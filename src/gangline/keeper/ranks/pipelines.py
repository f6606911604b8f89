"""Pipelines of a command: a shell that ends with the failure of any of their programs, where bash is there."""

import shutil
from collections.abc import Sequence
from pathlib import Path

_SHELLS = ("sh", "bash")


def with_pipefail(argv: Sequence[str], search_path: str | None) -> tuple[str, ...]:
    """`argv`, for which `sh -c` and `bash -c` with a pipeline become `bash -o pipefail -c`.

    A shell ends with the code of the last program of a pipeline, whatever became of those before it.

    Args:
        argv: Command of a rank.
        search_path: `PATH` of the rank, where bash is looked for.
    """
    if Path(argv[0]).name not in _SHELLS or not _has_pipeline(argv[1:]):
        return tuple(argv)
    bash = shutil.which("bash", path=search_path)
    return (bash, "-o", "pipefail", *argv[1:]) if bash is not None else tuple(argv)


def _has_pipeline(words: Sequence[str]) -> bool:
    options = [word for word in words[:-1] if word.startswith("-") and not word.startswith("--") and "c" in word]
    text = next((words[words.index(option) + 1] for option in options), "")
    return "|" in text.replace("||", "")
