"""Steps, samples and seed of a proposed line, as far as a script says them."""

from collections.abc import Iterable

from gangline.init.guessed_key import GuessedKey
from gangline.init.training_script import SCRIPT_KINDS, Script, ScriptOption

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
            table="train", name="steps", value=steps[0], why=f"{steps[1]} of {script.file_of(steps[1])}, which decides"
        )
    elif endless:
        why = f"{endless.name} of the command; its default {endless.default} may mean no end"
        yield GuessedKey(table="train", name="steps", value=FIRST_STEPS, why=why)
    else:
        known = f"it counts {epochs[0]} epochs" if epochs else "no number of steps was found"
        why = f"? {known}; for progress alone, the program decides when it ends"
        yield GuessedKey(table="train", name="steps", value=FIRST_STEPS, why=why)
    if whole := script.number("global"):
        why = f"{whole[1]} of {script.file_of(whole[1])}"
        yield GuessedKey(table="train", name="global_batch", value=whole[0], why=why)
    elif batch:
        yield _global_batch(script, *batch)
    else:
        named = (
            f"{script.total_batch} of {script.file_of(script.total_batch)} is one"
            if script.total_batch
            else "none was found"
        )
        why = f"? samples of a step: {named}"
        yield GuessedKey(table="train", name="global_batch", value=_RANKS_HERE, why=why)
    seed = script.seed
    if seed and type(seed.default) is int and seed.default >= 0:
        why = f"default of {seed.name}, so that its numbers are those of the script alone"
        yield GuessedKey(table="train", name="seed", value=seed.default, why=why)


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
        why = f"? {why}; {script.total_batch} may make more passes of it"
    return GuessedKey(table="train", name="global_batch", value=batch * passes * ranks, why=why)


def bounding_option(script: Script) -> ScriptOption | None:
    """Option that gives a script an end which its default may not give it; None: it has one, or counts epochs."""
    return script.endless if script.number("steps") is None and script.number("epochs") is None else None
