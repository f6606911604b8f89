"""Choice of the script that trains among the Python files of a repository."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from gangline.errors import UsageError
from gangline.init.console_scripts import ConsoleScript
from gangline.init.python_module import PythonModule
from gangline.init.script_analysis import PythonFiles, is_in_package
from gangline.init.training_script import Script
from gangline.spec.config.problems import refusal

_LEFT_OUT = frozenset({"tests", "test", "docs", "doc", "setup.py", "conftest.py", "noxfile.py"})
_LATE = frozenset({
    "archive", "archived", "backup", "bak", "bench", "benchmark", "benchmarks", "contrib", "copy", "demo", "demos",
    "deprecated", "eval", "evaluation", "example", "examples", "experimental", "experiments", "extensions", "external",
    "legacy", "notebooks", "obsolete", "old", "records", "sandbox", "third", "tools", "tutorial", "tutorials", "unused",
    "vendor",
})  # fmt: skip
"""Words of paths whose scripts come after all others."""
_LIKELY = {"train": 6, "main": 5, "pretrain": 4, "finetune": 3, "run": 2, "fit": 1}
"""Words of the names of trainings; a name that is one of them counts twice."""
_OF_KINDS = {"plain": 0, "torch": 3, "sklearn": 3, "xgboost": 4, "jax": 4, "keras": 4}
_OF_FRAMEWORKS = 6
_DEEPEST = 3
"""Folders above a script that count against it."""
_MOST_OTHERS = 3
_MOST_SEARCHED = 12
"""Scripts whose imports are followed, the likeliest by their own text first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScriptChoice:
    """The script to train, and what else was there."""

    script: Script
    others: tuple[Script, ...]
    """The next likely, at most _MOST_OTHERS."""
    has_equals: bool
    """Other scripts are as likely."""


def choose_script(
    files: Mapping[str, bytes], parsed: PythonFiles, wanted: str | None, entries: Mapping[str, ConsoleScript]
) -> ScriptChoice:
    """The script `wanted`, or the likeliest.

    Raises:
        ConfigError: No file looks like a training, or `wanted` is not Python.
        UsageError: `wanted` is not among the files.
    """
    if wanted is not None:
        return ScriptChoice(script=_named(files, parsed, wanted), others=(), has_equals=False)
    paths = [path for path in files if path.endswith(".py") and is_source(path)]
    likely = [path for path in paths if path in entries or b"__main__" in files[path] or not is_in_package(path, files)]
    searched = _searched(parsed, likely, entries) or _searched(parsed, paths, entries)
    scored = {script.path: likelihood(script, entries.get(script.path)) for script in searched}
    ranked = sorted(
        (script for script in searched if scored[script.path] > 0),
        key=lambda script: (is_late(script.path), -scored[script.path], script.path.count("/"), script.path),
    )
    if not ranked:
        raise refusal(_none_found(files, paths))
    first, *others = ranked
    has_equals = any(_rank(other, scored) == _rank(first, scored) for other in others)
    return ScriptChoice(script=first, others=tuple(others[:_MOST_OTHERS]), has_equals=has_equals)


def _searched(
    parsed: PythonFiles, paths: Collection[str], entries: Mapping[str, ConsoleScript]
) -> list[Script]:  # fmt: skip
    """Scripts among `paths`, the likeliest by their own text."""
    modules = [module for path in paths if (module := parsed.module(path)) is not None]
    likely = [
        python_module
        for python_module in modules
        if _likelihood(python_module, "torchrun", entries.get(python_module.path)) > 0
    ]
    likely.sort(
        key=lambda python_module: (
            is_late(python_module.path),
            -_likelihood(python_module, "torch", entries.get(python_module.path)),
        )
    )
    scripts = (parsed.script(python_module.path) for python_module in likely[:_MOST_SEARCHED])
    return [script for script in scripts if script is not None]


def likelihood(script: Script, entry: ConsoleScript | None = None) -> int:
    """How likely the script is the training; 0 or less if it is not."""
    return _likelihood(script.module, script.kind, entry)


def _likelihood(module: PythonModule, kind: str, entry: ConsoleScript | None) -> int:
    if module.only_defines and entry is None:
        return 0
    name = _name_score(PurePosixPath(module.path).stem) + (_name_score(entry.name) if entry else 0)
    starts = 4 if module.has_main or module.begins or entry else 0
    framework = _OF_KINDS.get(kind, _OF_FRAMEWORKS)
    if not (module.trains or (entry and entry.command) or framework == _OF_FRAMEWORKS):
        return 1 if name and starts else 0
    return framework + name + starts - 2 * min(module.path.count("/"), _DEEPEST)


def is_late(path: str) -> bool:
    """Whether a path has a word such as `legacy` or `tutorials`."""
    return bool(_LATE & set(_words(path)))


def _rank(script: Script, scored: Mapping[str, int]) -> tuple[bool, int]:
    return is_late(script.path), scored[script.path]


def _name_score(name: str) -> int:
    words = _words(name.replace("fine_tune", "finetune").replace("fine-tune", "finetune"))
    score = sum(_LIKELY.get(word, word.startswith("train") or word.endswith("train")) for word in set(words))
    return 2 * score if len(words) == 1 else score


def _words(path: str) -> list[str]:
    return re.findall(r"[a-z]+", path.lower().removesuffix(".py"))


def _named(files: Mapping[str, bytes], parsed: PythonFiles, wanted: str) -> Script:
    if wanted not in files:
        raise UsageError(f"--script: wanted a tracked file, found no {wanted!r}; git add it, or name another")
    if (script := parsed.script(wanted)) is None:
        raise refusal(f"--script {wanted}: wanted Python that this interpreter reads, found a syntax error")
    return script


def is_source(path: str) -> bool:
    """Whether a file is code of the repository and not of its tests, documents or installation."""
    parts = PurePosixPath(path).parts
    return not any(part in _LEFT_OUT or part.startswith((".", "test_")) for part in parts)


def _none_found(files: Mapping[str, bytes], paths: Collection[str]) -> str:
    notebooks = sorted(path for path in files if path.endswith(".ipynb"))
    first = next((path for path in paths if not path.endswith("__init__.py")), "train.py")
    advice = f"gangline init --script {first} chooses any tracked file"
    if notebooks:
        advice = f"jupyter nbconvert --to script {notebooks[0]}, git add it"
    among = "1 Python file" if len(paths) == 1 else f"{len(paths)} Python files"
    return f"wanted a script that trains, found none among {among}; {advice}"
