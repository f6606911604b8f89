"""Rules of `[slurm]` of `site.toml` beyond the types of its values."""

import re
from collections.abc import Iterator

from gangline.spec.config.problems import ConfigProblem, show
from gangline.spec.config.slurm_table import SlurmTable

_ROUND_SECONDS = 60
"""Slurm counts limits in minutes, and its signal may come as much earlier."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.,:-]{0,127}")
_CONSTRAINT = re.compile(r"[A-Za-z0-9_.,:|&*()\[\]-]{1,256}")
_OURS = ("--array", "-a", "--wrap", "--job-name", "-J", "--comment", "--chdir", "-D", "--output", "-o", "--hold", "-H",
         "--parsable", "--nodes", "-N", "--ntasks", "-n", "--ntasks-per-node", "--signal")  # fmt: skip
"""Options by which a gang is started and found again."""


def slurm_rules(slurm: SlurmTable, *, is_target: bool) -> Iterator[ConfigProblem]:
    """Problems of `[slurm]`; `is_target`: gangs of this site run there."""
    works = '"/shared/gangline" works'
    if is_target and slurm.shared is None:
        yield ConfigProblem("slurm.shared", "a folder that this machine and all servers see", "nothing", works)
    if slurm.shared is not None:
        parts = slurm.shared.split("/")
        if not slurm.shared.startswith("/") or {".", ".."} & set(parts) or not slurm.shared.isprintable():
            yield ConfigProblem("slurm.shared", "an absolute path", show(slurm.shared), works)
    for name in ("partition", "account", "qos"):
        value = getattr(slurm, name)
        if value is not None and not _NAME.fullmatch(value):
            yield ConfigProblem(f"slurm.{name}", "a name of letters, digits, _, ., - and commas", show(value))
    if slurm.constraint is not None and not _CONSTRAINT.fullmatch(slurm.constraint):
        yield ConfigProblem("slurm.constraint", "features, joined by & or |", show(slurm.constraint), '"h100&ib" works')
    least = slurm.margin_seconds + _ROUND_SECONDS
    if slurm.time_seconds is not None and slurm.time_seconds <= least:
        wanted = f"more than margin_seconds and a minute, {least} s together: the signal to save comes so early"
        yield ConfigProblem("slurm.time_seconds", wanted, show(slurm.time_seconds), "3600 works")
    yield from _word_rules(slurm)


def _word_rules(slurm: SlurmTable) -> Iterator[ConfigProblem]:
    for name in ("options", "via"):
        for index, word in enumerate(getattr(slurm, name)):
            if not word or not word.isprintable():
                yield ConfigProblem(f"slurm.{name}[{index}]", "a word of printable characters", show(word))
    for index, word in enumerate(slurm.options):
        if word.partition("=")[0] in _OURS:
            yield ConfigProblem(f"slurm.options[{index}]", "an option that gangline does not give", show(word))
        elif word and word.isprintable() and not word.startswith("-"):
            works = '"--reservation=maintenance" works, as one word'
            yield ConfigProblem(f"slurm.options[{index}]", "an option of sbatch", show(word), works)
