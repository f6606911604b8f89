"""Proposal of a line from what a repository contains, each value with its reason, which is a comment in its text."""

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from pathlib import PurePosixPath

from gangline.init.console_scripts import ConsoleScript, console_scripts
from gangline.init.declared_stages import UNKNOWN, DeclaredStage, DvcData, declared_stages
from gangline.init.package_locks import guess_lock
from gangline.init.script_analysis import PythonFiles
from gangline.init.script_choice import ScriptChoice, choose_script, is_source, likelihood
from gangline.init.training_script import SCRIPT_KINDS, STARTS_ITS_OWN, Script, ScriptOption
from gangline.spec.config.line import PublishTable
from gangline.spec.globs import matches

_HYDRA = "out"
"""Folder that Hydra writes to; by itself it names one by the time."""
_MOST_READS = 50
"""Paths of data that git is asked about."""
_DOCUMENTS = {"docs/**": re.compile(rb"\bdocs?\b"), "*.md": re.compile(rb"\.md\b")}
"""Globs of files that programs seldom read, and what names them in one that does."""
_WITH_CALLBACK = frozenset({"lightning", "pytorch_lightning", "transformers"})
"""Modules of libraries whose trainers take a callback of gangline."""
_METRICS = re.compile(r"[\w./-]*(metric|result|score)\w*\.(json|jsonl|csv)")
_OUTPUT = re.compile(
    r"(\*\*/)?([\w-]+/)*[\w*-]+\.(pt|pth|pth\.tar|ckpt|bin|npz|npy|safetensors|keras|h5|joblib|onnx|pkl|json|csv|png)|([\w-]+/)+"
)

_WIDEST = 48
"""A comment follows a key of at most so many characters; a longer key has it above."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GuessedKey:
    """A key of the proposed line."""

    table: str
    name: str
    value: object
    origin: str
    """Where the value comes from, or what somebody has to say instead."""
    is_known: bool = True
    """The value comes from the repository; false: it is a placeholder."""

    @property
    def why(self) -> str:
        """The origin as the line has it in a comment, after a `?` where the value is a placeholder."""
        return self.origin if self.is_known else f"? {self.origin}"


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
    tracked: Collection[str] | None = None,
    untracked: Mapping[str, bytes] | None = None,
    root: str = "/",
) -> LineGuess:
    """The line for `files` (path -> content) of a repository in `folder`.

    Args:
        files: Tracked files that matter: Python, locks, what other tools declare.
        folder: Its name becomes the project's.
        script: Path of the script to train; None chooses the likeliest.
        has_gpu: Whether this machine has a GPU.
        branch: The repository's default branch, if known.
        leaves_out: Whether git ignores a path, so that no commit has it.
        tracked: Paths of all tracked files; None: those of `files`.
        untracked: Files at the top that may be locks, and that git neither tracks nor ignores.
        root: Path of the repository, where relative remotes of DVC begin.

    Raises:
        ConfigError: No file looks like a training, or `script` is not Python.
        UsageError: `script` is not among the files.
    """
    parsed, entries = PythonFiles(files), console_scripts(files)
    tracked = files.keys() if tracked is None else tracked
    stages, notes = declared_stages(files)
    stage = _stage(stages, parsed, script, entries)
    dvc = DvcData.of(files, base=f"{root}/.dvc")
    choice = choose_script(files, parsed, stage.script if stage else script, entries)
    chosen = _as_declared(choice.script, stage) if stage else choice.script
    entry = None if stage else entries.get(chosen.path)
    if entry and not (chosen.module.only_defines or entry.command):
        entry = None
    lock = guess_lock(files, tracked=tracked, untracked=untracked)
    locked = GuessedKey(table="env", name="lock", value=lock.path, origin="its packages have hashes")
    keys = [
        GuessedKey(table="project", name="name", value=_slug(folder), origin="the folder's name"),
        *(_declared_command(chosen, stage) if stage else _command(choice, entry)),
        *_path(files, chosen, entry),
        *_exclude(files, tracked),
        *_written(chosen, stage),
        *_single_process(chosen),
        *([locked] if lock.path else []),
        *number_keys(chosen, is_declared=stage is not None),
        *_branches(branch),
    ]
    reports = any(key.name == "metrics" for key in keys)
    notes += [
        *_other_stages(stages, stage), *_only_defines(chosen, entry),
        *_other_entries(entries, entry), *_notes(chosen, has_gpu=has_gpu, reports=reports), *lock.notes,
        *dvc.notes(chosen.reads), *_missing(chosen, lambda path: not dvc.tracks(path) and leaves_out(path)),
    ]  # fmt: skip
    return LineGuess(script=chosen, others=choice.others, keys=tuple(keys), notes=tuple(notes))


def _stage(
    stages: Iterable[DeclaredStage], parsed: PythonFiles, wanted: str | None,
    entries: Mapping[str, ConsoleScript],
) -> DeclaredStage | None:  # fmt: skip
    """Choose a training stage: `main`, else the last that writes metrics, else the last; None if no command fits."""
    taken = [stage for stage in stages if stage.words and wanted in (None, stage.script)]
    read = [(stage, script) for stage in taken if (script := parsed.script(stage.script)) is not None]
    trains = [stage for stage, script in read if likelihood(script, entries.get(stage.script)) > 0]
    trains = trains or [stage for stage, _ in read]
    ranked = sorted(trains, key=lambda train: (train.name == "main", train.metrics is not None))
    return ranked[-1] if ranked else None


def _as_declared(script: Script, stage: DeclaredStage) -> Script:
    """The script with the values that its command gives to options, and with what it is said to read."""
    given = dict(pairwise(stage.words)) | dict(word.split("=", 1) for word in stage.words if "=" in word)
    options = tuple(
        replace(option, default=int(given[option.name])) if given.get(option.name, "").isdecimal() else option
        for option in script.options
    )
    numbers: dict[str, int | None] = {**script.numbers, **stage.numbers}
    return replace(script, options=options, numbers=numbers, reads=(*script.reads, *stage.reads))


def _slug(folder: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", folder.lower()).lstrip("-0123456789")[:20].strip("-") or "model"


def _command(choice: ScriptChoice, entry: ConsoleScript | None) -> Iterable[GuessedKey]:
    script = choice.script
    path = PurePosixPath(script.path)
    module = script.relative and len(path.parts) > 1
    start = ["-m", ".".join(path.with_suffix("").parts)] if module else [script.path]
    if entry:
        start = entry.words
    required = (
        [] if entry and entry.command else [word for option in script.required for word in _known_options(option)]
    )
    endless = bounding_option(script)
    steps = [endless.name, str(FIRST_STEPS)] if endless else []
    seed = [script.seed_option, "{seed}"] if script.seed_option else []
    saves = [script.save_flag] if script.save_flag and any(_globs(script)) else []
    hydra = [f"hydra.run.dir={_HYDRA}"] if script.by_hydra else []
    words = ["python", *start, *required, *steps, *saves, *seed, *hydra]
    origin, is_known = _command_origin(choice, entry, saves)
    yield GuessedKey(table="project", name="command", value=words, origin=origin, is_known=is_known)


def _command_origin(choice: ScriptChoice, entry: ConsoleScript | None, saves: Iterable[str]) -> tuple[str, bool]:
    """Where the words of the command come from, and whether all of them come from the repository."""
    script = choice.script
    unknown = [option.name for option in script.required if _placeholder(option) == "?"]
    if unknown:
        why = f"a value for {', '.join(unknown)}: {script.options_path} needs one"
    elif entry and entry.command:
        return f"the arguments that {entry.name} {entry.command} of {entry.pyproject} needs", False
    elif entry:
        why = f"{entry.name} of {entry.pyproject}"
    else:
        why = ", ".join(filter(None, [SCRIPT_KINDS[script.kind][0], script.sign]))
        if wants := [option.name for option in script.required]:
            why += f"; it wants {', '.join(wants)}"
    why += "".join(f"; {flag}, or it saves nothing" for flag in saves)
    if choice.has_equals and not unknown:
        return f"others are as likely, --script chooses; {why}", False
    return why, not unknown


def _declared_command(script: Script, stage: DeclaredStage) -> Iterable[GuessedKey]:
    words, option = [*stage.words], script.seed_option
    if option in words[:-1]:
        words[words.index(option) + 1] = "{seed}"
    elif option and not any("{seed}" in word for word in words):
        words += [option, "{seed}"]
    is_known = UNKNOWN not in words
    why = str(stage) if is_known else f"a value for {UNKNOWN}: {stage} has a parameter without one"
    yield GuessedKey(table="project", name="command", value=words, origin=why, is_known=is_known)


def _path(files: Mapping[str, bytes], script: Script, entry: ConsoleScript | None) -> Iterable[GuessedKey]:
    """`project.path` for the folder of an entry's package, and for a `src` layout whose package the script imports."""
    found = {
        path.split("/")[1].removesuffix(".py") for path in files if path.startswith("src/") and path.endswith(".py")
    }
    used = sorted(found & script.imports)
    if entry and entry.root:
        yield GuessedKey(
            table="project", name="path", value=[entry.root], origin=f"{entry.module} is imported from {entry.root}"
        )
    elif used:
        yield GuessedKey(table="project", name="path", value=["src"], origin=f"{used[0]} is imported from src")


def _exclude(files: Mapping[str, bytes], tracked: Collection[str]) -> Iterable[GuessedKey]:
    """`project.exclude` for documents that no Python file of the repository names."""
    sources = [data for path, data in files.items() if path.endswith((".py", ".ipynb")) and is_source(path)]
    globs = [
        glob for glob, names in _DOCUMENTS.items()
        if any(matches(path, glob) for path in tracked) and not any(map(names.search, sources))
    ]  # fmt: skip
    if globs:
        why = "no Python file names them; a change there does not train again"
        yield GuessedKey(table="project", name="exclude", value=globs, origin=why)


def _written(script: Script, stage: DeclaredStage | None) -> Iterable[GuessedKey]:
    """`project.metrics` and `project.outputs`, as a stage declares them, else by the paths that the script writes."""
    declared = (stage.metrics, stage.outputs) if stage else (None, ())
    if metrics := declared[0] or _metrics_file(script):
        yield GuessedKey(
            table="project", name="metrics", value=metrics, origin=str(stage) if declared[0] else "it writes that"
        )
    own = [each for each in _globs(script) if each != metrics][:4]
    if script.by_hydra and stage is None:
        own += [f"{_HYDRA}/**"]
    if globs := [*declared[1]] or own:
        yield GuessedKey(
            table="project", name="outputs", value=globs, origin=str(stage) if declared[1] else "it writes these"
        )


def _metrics_file(script: Script) -> str | None:
    return next((text for text in sorted(script.texts) if _METRICS.fullmatch(text)), None)


def _globs(script: Script) -> list[str]:
    files = {text for text in script.texts if _OUTPUT.fullmatch(text)} - {_metrics_file(script)}
    return sorted(f"{file}**" if file.endswith("/") else file for file in files)


def _known_options(option: ScriptOption) -> list[str]:
    return [option.name, _placeholder(option)] if option.name.startswith("-") else [_placeholder(option)]


def _placeholder(option: ScriptOption) -> str:
    """Value for a required option; small, so that the first run is short. `?` if unknown."""
    for words, value in ((("epoch",), "2"), (("step", "iter"), "100"), (("save", "every", "interval"), "1"),
                         (("batch",), "32"), (("seed",), "{seed}")):  # fmt: skip
        if any(word in option.key for word in words):
            return value
    return "?"


def _single_process(script: Script) -> Iterable[GuessedKey]:
    """`project.distributed` of a script for whose ranks no code was found, or that starts its processes itself."""
    search = script.search
    if search is None or SCRIPT_KINDS[script.kind][1]:
        return
    is_known = True
    if script.kind in STARTS_ITS_OWN:
        who = "lightning" if script.kind == "lightning" else script.path
        why = f"{who} starts its processes itself, {script.sign}"
    else:
        count = search.num_modules
        inside = f" and the {f'{count} modules' if count > 1 else 'module'} of the repository that it uses"
        why = f"no code for ranks in {script.path}{inside if count else ''}"
        is_known = not search.not_seen
        why = why if is_known else f"{why}; not seen: {search.not_seen}"
    yield GuessedKey(table="project", name="distributed", value=False, origin=why, is_known=is_known)


def _branches(default: str | None) -> Iterable[GuessedKey]:
    if default and default not in PublishTable().branches:
        yield GuessedKey(table="publish", name="branches", value=[default], origin="the repository's default branch")


def _only_defines(script: Script, entry: ConsoleScript | None) -> Iterable[str]:
    if script.module.only_defines and entry is None:
        yield f'{script.path} only defines functions: started, it does nothing; "python", "-c" and a call start one'


def _other_stages(stages: Iterable[DeclaredStage], stage: DeclaredStage | None) -> Iterable[str]:
    others = [str(declared_stage) for declared_stage in stages if declared_stage is not stage]
    if others and stage:
        yield f"a run does not start {', '.join(others)}: what {stage.name} needs of them has to be in the commit"
    elif others:
        yield f"no command of {', '.join(others)} is one script of Python without a shell: none was taken"


def _other_entries(entries: Mapping[str, ConsoleScript], entry: ConsoleScript | None) -> Iterable[str]:
    for other in entries.values():
        if other is not entry and other.command:
            yield (
                f"{other.name} of {other.pyproject} has a sub-command {other.command}:"
                f" project.command = {json.dumps(['python', *other.words])} and its arguments"
            )


def _notes(script: Script, *, has_gpu: bool, reports: bool) -> Iterable[str]:
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
        yield (
            f"no option --seed was found in {script.options_path}: read GANGLINE_SEED, or all seeds of a band give"
            " equal results"
        )
    if not reports and script.kind != "gangline":
        curve = "a callback gives" if script.imports & _WITH_CALLBACK else "three lines of Program give"
        yield f"no metric is reported: project.metrics names a file of numbers, or {curve} a curve"


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


FIRST_STEPS = 100
"""Steps of a first run where the script does not say."""
_RANKS_HERE = 2


def number_keys(script: Script, *, is_declared: bool) -> Iterable[GuessedKey]:
    """`train.steps`, `train.global_batch` and `train.seed` of the proposed line.

    With `is_declared` the command is that of another tool, and stays as it is.
    """
    steps, epochs, batch = script.number("steps"), script.number("epochs"), script.number("batch")
    endless = None if is_declared else bounding_option(script)
    if steps:
        yield GuessedKey(
            table="train",
            name="steps",
            value=steps[0],
            origin=f"{steps[1]} of {script.file_of(steps[1])}, which decides",
        )
    elif endless:
        why = f"{endless.name} of the command; its default {endless.default} may mean no end"
        yield GuessedKey(table="train", name="steps", value=FIRST_STEPS, origin=why)
    else:
        known = f"it counts {epochs[0]} epochs" if epochs else "no number of steps was found"
        why = f"{known}; for progress alone, the program decides when it ends"
        yield GuessedKey(table="train", name="steps", value=FIRST_STEPS, origin=why, is_known=False)
    if whole := script.number("global"):
        why = f"{whole[1]} of {script.file_of(whole[1])}"
        yield GuessedKey(table="train", name="global_batch", value=whole[0], origin=why)
    elif batch:
        yield _global_batch(script, *batch)
    else:
        named = (
            f"{script.total_batch} of {script.file_of(script.total_batch)} is one"
            if script.total_batch
            else "none was found"
        )
        why = f"samples of a step: {named}"
        yield GuessedKey(table="train", name="global_batch", value=_RANKS_HERE, origin=why, is_known=False)
    seed = script.seed
    if seed and type(seed.default) is int and seed.default >= 0:
        why = f"default of {seed.name}, so that its numbers are those of the script alone"
        yield GuessedKey(table="train", name="seed", value=seed.default, origin=why)


def _global_batch(script: Script, batch: int, name: str) -> GuessedKey:
    """Samples of a pass, times the passes of an update, times the ranks unless the script divides by them."""
    passes, other = script.number("accumulates") or (1, "")
    has_ranks = SCRIPT_KINDS[script.kind][1]
    shared = {each.lstrip("-").replace("-", "_").lower() for each in (name, other)} & script.shared
    ranks = _RANKS_HERE if has_ranks and not shared else 1
    why = f"{name}{f' x {other}' if passes > 1 else ''} of {script.file_of(name)}"
    if has_ranks:
        why += ", shared by its ranks" if shared else f", if it has {_RANKS_HERE} ranks"
    if script.total_batch:
        why += f"; {script.total_batch} may make more passes of it"
    value, is_known = batch * passes * ranks, not script.total_batch
    return GuessedKey(table="train", name="global_batch", value=value, origin=why, is_known=is_known)


def bounding_option(script: Script) -> ScriptOption | None:
    """Option that gives a script an end which its default may not give it; None: it has one, or counts epochs."""
    return script.endless if script.number("steps") is None and script.number("epochs") is None else None


def line_text(guess: LineGuess) -> str:
    """All tables of the proposal."""
    blocks = []
    for table, keys in groupby(guess.keys, key=lambda key: key.table):
        blocks.append("\n".join([f"[{table}]", *(_key(key) for key in keys)]))
    return "\n".join(blocks) + "\n"


def _key(key: GuessedKey) -> str:
    text = f"{key.name} = {json.dumps(key.value, ensure_ascii=False)}"
    why = "".join(each if each.isprintable() else "?" for each in key.why)
    return f"{text:<{_WIDEST}}  # {why}" if len(text) <= _WIDEST else f"# {why}\n{text}"
