"""Text of a proposed line.toml, with the reason of each value as a comment."""

import json
from itertools import groupby

from gangline.init.guessed_key import GuessedKey
from gangline.init.line_guess import LineGuess

_WIDEST = 48
"""A comment follows a key of at most so many characters; a longer key has it above."""


def line_text(guess: LineGuess) -> str:
    """All tables of the proposal."""
    blocks = []
    for table, keys in groupby(guess.keys, key=lambda each: each.table):
        blocks.append("\n".join([f"[{table}]", *(_key(each) for each in keys)]))
    return "\n".join(blocks) + "\n"


def _key(key: GuessedKey) -> str:
    text = f"{key.name} = {json.dumps(key.value, ensure_ascii=False)}"
    why = "".join(each if each.isprintable() else "?" for each in key.why)
    return f"{text:<{_WIDEST}}  # {why}" if len(text) <= _WIDEST else f"# {why}\n{text}"
