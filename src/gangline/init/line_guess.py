"""Proposal of a line from what a repository contains, each value with its reason."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import PurePosixPath

from gangline.errors import ConfigError, UsageError
from gangline.init.console_scripts import ConsoleScript, console_scripts
from gangline.init.declared_stages import UNKNOWN, DeclaredStage, declared_stages
from gangline.init.script_analysis import read_script
from gangline.init.training_script import SCRIPT_KINDS, Script, ScriptOption
from gangline.spec.config.line import PublishTable
from gangline.spec.config.lock import check_lock
from gangline.spec.config.problems import refusal

_LEFT_OUT = frozenset({"tests", "test", "docs", "doc", "examples", "setup.py", "conftest.py", "noxfile.py"})
_LIKELY = ("train", "main", "finetune", "pretrain", "run", "fit")
_RANKS_HERE = 2
_HYDRA = "out"
"""Folder that Hydra writes to; by itself it names one by the time."""
_MOST_READS = 50
"""Paths of data that git is asked about."""
_LOCKS = re.compile(r"uv\.lock|pylock\.toml|requirements[^/]*\.(txt|lock)")
_METRICS = re.compile(r"[\w./-]*(metric|result|score)\w*\.(json|jsonl|csv)")
_OUTPUT = re.compile(
    r"(\*\*/)?([\w-]+/)*[\w*-]+\.(pt|pth|pth\.tar|ckpt|bin|npz|npy|safetensors|keras|h5|joblib|onnx|pkl|json|csv|png)|([\w-]+/)+"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class GuessedKey:
    """A key of the proposed line."""

    table: str
    name: str
    value: object
    why: str
    """Origin of the value; starts with `?` if the value is only a placeholder."""

    @property
    def is_known(self) -> bool:
        """Whether the value comes from the repository and is not a placeholder."""
        return not self.why.startswith("?")


@dataclass(frozen=True, kw_only=True, slots=True)
class LineGuess:
    """The line proposed for a repository."""

    script: Script
    others: tuple[Script, ...]
    keys: tuple[GuessedKey, ...]
    notes: tuple[str, ...]
    """Advice for the owner before the first run."""


def guess_line(
    files: Mapping[str, bytes],
    *,
    folder: str,
    script: str | None = None,
    has_gpu: bool = False,
    branch: str | None = None,
    leaves_out: Callable[[str], bool] = lambda _path: False,
) -> LineGuess:
    """The line for `files` (path -> content) of a repository in `folder`.

    Args:
        files: Tracked files that matter: Python, locks, what other tools declare.
        folder: Its name becomes the project's.
        script: Path of the script to train; None chooses the likeliest.
        has_gpu: Whether this machine has a GPU.
        branch: The repository's default branch, if known.
        leaves_out: Whether git ignores a path, so that no commit has it.

    Raises:
        ConfigError: No file looks like a training, or `script` is not Python.
        UsageError: `script` is not among the files.
    """
    entries = console_scripts(files.get("pyproject.toml", b""), files)
    stages, notes = declared_stages(files)
    stage = _stage(stages, files, script, entries)
    chosen, others = _choose(files, stage.script if stage else script, entries)
    entry = entries.get(chosen.path) if chosen.only_defines and not stage else None
    if stage:
        chosen = _as_declared(chosen, stage)
    keys = [
        GuessedKey(table="project", name="name", value=_slug(folder), why="the folder's name"),
        *(_declared_command(chosen, stage) if stage else _command(chosen, entry)),
        *_path(files, chosen, entry),
        *_written(chosen, stage),
        *_single_process(chosen),
        *_lock(files),
        *_numbers(chosen),
        *_branches(branch),
    ]
    reports = any(key.name == "metrics" for key in keys)
    notes += [
        *_other_stages(stages, stage), *_only_defines(chosen, entry),
        *_notes(files, chosen, has_gpu=has_gpu, reports=reports), *_missing(chosen, leaves_out),
    ]  # fmt: skip
    return LineGuess(script=chosen, others=others, keys=tuple(keys), notes=tuple(notes))


def _stage(
    stages: Iterable[DeclaredStage], files: Mapping[str, bytes], wanted: str | None,
    entries: Mapping[str, ConsoleScript],
) -> DeclaredStage | None:  # fmt: skip
    """Of those that train, `main`, else the last that writes metrics, else the last; None: no command can be taken."""
    taken = [each for each in stages if each.words and wanted in (None, each.script)]
    read = [(each, script) for each in taken if (script := read_script(each.script, files[each.script])) is not None]
    trains = [each for each, script in read if _score(script, entries.get(each.script)) > 0]
    trains = trains or [each for each, _ in read]
    ranked = sorted(trains, key=lambda each: (each.name == "main", each.metrics is not None))
    return ranked[-1] if ranked else None


def _as_declared(script: Script, stage: DeclaredStage) -> Script:
    """The script with the values that its command gives to options, and with what it is said to read."""
    given = dict(pairwise(stage.words)) | dict(word.split("=", 1) for word in stage.words if "=" in word)
    options = tuple(
        replace(each, default=int(given[each.name])) if given.get(each.name, "").isdecimal() else each
        for each in script.options
    )
    numbers: dict[str, int | None] = {**script.numbers, **stage.numbers}
    return replace(script, options=options, numbers=numbers, reads=(*script.reads, *stage.reads))


def _choose(
    files: Mapping[str, bytes], wanted: str | None, entries: Mapping[str, ConsoleScript]
) -> tuple[Script, tuple[Script, ...]]:
    if wanted is not None and wanted not in files:
        raise UsageError(f"--script: wanted a tracked file, found no {wanted!r}; git add it, or name another")
    paths = [wanted] if wanted else [path for path in files if path.endswith(".py") and not _is_left_out(path)]
    found = [script for path in paths if (script := read_script(path, files[path])) is not None]
    if wanted and not found:
        raise refusal(f"--script {wanted}: wanted Python that this interpreter reads, found a syntax error")
    scores = {each.path: _score(each, entries.get(each.path)) for each in found}
    likely = sorted(
        (each for each in found if wanted or scores[each.path] > 0), key=lambda each: (-scores[each.path], each.path)
    )
    if not likely:
        notebooks = sorted(path for path in files if path.endswith(".ipynb"))
        first = next((path for path in paths if not path.endswith("__init__.py")), "train.py")
        advice = f"gangline init --script {first} chooses any tracked file"
        if notebooks:
            advice = f"jupyter nbconvert --to script {notebooks[0]}, git add it"
        among = "1 Python file" if len(paths) == 1 else f"{len(paths)} Python files"
        raise refusal(f"wanted a script that trains, found none among {among}; {advice}")
    return likely[0], tuple(likely[1:4])


def _is_left_out(path: str) -> bool:
    parts = PurePosixPath(path).parts
    return any(part in _LEFT_OUT or part.startswith((".", "test_")) for part in parts)


def _score(script: Script, entry: ConsoleScript | None) -> int:
    """How likely the script is the training; 0 or less if it is not."""
    stem = PurePosixPath(script.path).stem.lower() + (f" {entry.name.lower()}" if entry else "")
    framework = {"plain": 0, "torch": 3, "sklearn": 3, "xgboost": 4, "jax": 4, "keras": 4}.get(script.kind, 8)
    name = next((6 - place for place, word in enumerate(_LIKELY) if word in stem), 0)
    starts = 4 if script.has_main or entry else 0
    if script.only_defines and not entry:
        return 0
    if not script.trains and framework < 8:
        return 0 if not (name and starts) else 1
    return framework + name + starts - 2 * (len(PurePosixPath(script.path).parts) - 1)


def _slug(folder: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", folder.lower()).lstrip("-0123456789")[:20].strip("-") or "model"


def _command(script: Script, entry: ConsoleScript | None) -> Iterable[GuessedKey]:
    path = PurePosixPath(script.path)
    module = script.relative and len(path.parts) > 1
    start = ["-m", ".".join(path.with_suffix("").parts)] if module else [script.path]
    start = entry.words if entry else start
    required = [word for each in script.required for word in _known_options(each)]
    seed = [script.seed_option, "{seed}"] if script.seed_option else []
    line = f", line {script.line}" if script.line else ""
    why = f"{SCRIPT_KINDS[script.kind][0]}{line}" if entry is None else f"{entry.name} of pyproject.toml"
    if unknown := [each.name for each in script.required if _placeholder(each) == "?"]:
        why = f"? a value for {', '.join(unknown)}: {script.path} needs one"
    elif required:
        why += f"; it wants {', '.join(each.name for each in script.required)}"
    saves = [script.save_flag] if script.save_flag and any(_globs(script)) else []
    why += f"; {script.save_flag}, or it saves nothing" if saves else ""
    hydra = [f"hydra.run.dir={_HYDRA}"] if script.by_hydra else []
    words = ["python", *start, *required, *saves, *seed, *hydra]
    yield GuessedKey(table="project", name="command", value=words, why=why)


def _declared_command(script: Script, stage: DeclaredStage) -> Iterable[GuessedKey]:
    words, option = [*stage.words], script.seed_option
    if option in words[:-1]:
        words[words.index(option) + 1] = "{seed}"
    elif option and not any("{seed}" in word for word in words):
        words += [option, "{seed}"]
    why = f"? a value for {UNKNOWN}: {stage} has a parameter without one" if UNKNOWN in words else str(stage)
    yield GuessedKey(table="project", name="command", value=words, why=why)


def _path(files: Mapping[str, bytes], script: Script, entry: ConsoleScript | None) -> Iterable[GuessedKey]:
    """`project.path` for a `src` layout whose package the script imports."""
    found = {
        path.split("/")[1].removesuffix(".py") for path in files if path.startswith("src/") and path.endswith(".py")
    }
    if used := sorted(found & {*script.imports, *([entry.module.partition(".")[0]] if entry else [])}):
        yield GuessedKey(table="project", name="path", value=["src"], why=f"{used[0]} is imported from src")


def _written(script: Script, stage: DeclaredStage | None) -> Iterable[GuessedKey]:
    """`project.metrics` and `project.outputs`, as a stage declares them, else by the paths that the script writes."""
    declared = (stage.metrics, stage.outputs) if stage else (None, ())
    if metrics := declared[0] or _metrics_file(script):
        yield GuessedKey(
            table="project", name="metrics", value=metrics, why=str(stage) if declared[0] else "it writes that"
        )
    own = [each for each in _globs(script) if each != metrics][:4]
    if script.by_hydra and stage is None:
        own += [f"{_HYDRA}/**"]
    if globs := [*declared[1]] or own:
        yield GuessedKey(
            table="project", name="outputs", value=globs, why=str(stage) if declared[1] else "it writes these"
        )


def _metrics_file(script: Script) -> str | None:
    return next((each for each in sorted(script.texts) if _METRICS.fullmatch(each)), None)


def _globs(script: Script) -> list[str]:
    files = {each for each in script.texts if _OUTPUT.fullmatch(each)} - {_metrics_file(script)}
    return sorted(f"{each}**" if each.endswith("/") else each for each in files)


def _known_options(option: ScriptOption) -> list[str]:
    return [option.name, _placeholder(option)] if option.name.startswith("-") else [_placeholder(option)]


def _placeholder(option: ScriptOption) -> str:
    """Value for a required option; small, so that the first run is short. `?` if unknown."""
    for words, value in ((("epoch",), "2"), (("step", "iter"), "100"), (("save", "every", "interval"), "1"),
                         (("batch",), "32"), (("seed",), "{seed}")):  # fmt: skip
        if any(word in option.key for word in words):
            return value
    return "?"


def _lock(files: Mapping[str, bytes]) -> Iterable[GuessedKey]:
    for path in sorted(files):
        if not _LOCKS.fullmatch(path) or (path.startswith("req") and b"--hash=sha256:" not in files[path]):
            continue
        try:
            check_lock(files[path], file=path)
        except ConfigError:
            continue
        yield GuessedKey(table="env", name="lock", value=path, why="its packages have hashes")
        return


def _numbers(script: Script) -> Iterable[GuessedKey]:
    steps, epochs, batch = script.number("steps"), script.number("epochs"), script.number("batch")
    if steps:
        yield GuessedKey(table="train", name="steps", value=steps[0], why=f"{steps[1]} of {script.path}, which decides")
    else:
        known = f"it counts {epochs[0]} epochs" if epochs else "not in the script"
        yield GuessedKey(
            table="train", name="steps", value=100, why=f"? {known}; for progress, the program ends by itself"
        )
    if batch:
        yield _global_batch(script, *batch)
    else:
        yield GuessedKey(
            table="train", name="global_batch", value=_RANKS_HERE, why="? samples of a step: the program has its own"
        )


def _global_batch(script: Script, batch: int, name: str) -> GuessedKey:
    """Samples of a pass, times the passes of an update, times the ranks unless the script divides by them."""
    passes, other = script.number("accumulates") or (1, "")
    has_ranks = SCRIPT_KINDS[script.kind][1]
    shared = {each.lstrip("-").replace("-", "_").lower() for each in (name, other)} & script.shared
    ranks = _RANKS_HERE if has_ranks and not shared else 1
    why = f"{name}{f' x {other}' if passes > 1 else ''} of {script.path}"
    if has_ranks:
        why += ", shared by its ranks" if shared else f", if it has {_RANKS_HERE} ranks"
    return GuessedKey(table="train", name="global_batch", value=batch * passes * ranks, why=why)


def _single_process(script: Script) -> Iterable[GuessedKey]:
    if not SCRIPT_KINDS[script.kind][1]:
        why = f"{script.path} does not divide work among ranks"
        yield GuessedKey(table="project", name="distributed", value=False, why=why)


def _branches(default: str | None) -> Iterable[GuessedKey]:
    if default and default not in PublishTable().branches:
        yield GuessedKey(table="publish", name="branches", value=[default], why="the repository's default branch")


def _only_defines(script: Script, entry: ConsoleScript | None) -> Iterable[str]:
    if script.only_defines and entry is None:
        yield f'{script.path} only defines functions: started, it does nothing; "python", "-c" and a call start one'


def _other_stages(stages: Iterable[DeclaredStage], stage: DeclaredStage | None) -> Iterable[str]:
    others = [str(each) for each in stages if each is not stage]
    if others and stage:
        yield f"a run does not start {', '.join(others)}: what {stage.name} needs of them has to be in the commit"
    elif others:
        yield f"no command of {', '.join(others)} is one script of Python without a shell: none was taken"


def _notes(files: Mapping[str, bytes], script: Script, *, has_gpu: bool, reports: bool) -> Iterable[str]:
    if script.needs_nccl and not has_gpu:
        yield 'its backend is "nccl", and there is no GPU here: "gloo" works on CPUs'
    accumulation = script.accumulation
    if accumulation and not script.number("accumulates") and script.number("batch"):
        yield f"global_batch does not include {accumulation}: its value in {script.path} is not a number"
    if script.takes_words:
        yield f"{script.path} reads sys.argv: its arguments are further words of project.command"
    if "hydra" in script.imports:
        yield 'Hydra takes its keys as further words of project.command: "seed={seed}", if its configuration has seed'
    elif script.seed_option is None and script.kind != "gangline" and not script.reads_seed:
        yield "it has no option --seed: read GANGLINE_SEED, or all seeds of a band give equal results"
    if not reports and script.kind != "gangline":
        yield "no metric is reported: project.metrics names a file of numbers, or three lines of Program give a curve"
    if not list(_lock(files)):
        yield "no lock: uv pip compile --generate-hashes requirements.in -o requirements.txt makes one for env.lock"


def _missing(script: Script, leaves_out: Callable[[str], bool]) -> Iterable[str]:
    """Note on files that git ignores; one path of each folder."""
    found: list[str] = []
    for path in script.reads[:_MOST_READS]:
        if not any(path.startswith(f"{each}/") for each in found) and leaves_out(path):
            found.append(path)
    if found:
        more = f" and {len(found) - 2} more" if len(found) > 2 else ""
        yield (
            f"git ignores {', '.join(found[:2])}{more}, which {script.path} opens: no run has such files. Use "
            "git add --force; an absolute path (in a home or /tmp: sandbox.read of site.toml); a script that makes them"
        )
