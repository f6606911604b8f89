"""A guess as the text of a line.toml: few lines, a comment beside each guess."""

import json
from itertools import groupby

from gangline.line.init.guess import Guess, Key

_WIDEST = 48
"""A comment stands beside a key of at most so many letters, else above it."""


def line_text(guess: Guess) -> str:
    blocks = []
    for table, keys in groupby(guess.keys, key=lambda each: each.table):
        blocks.append("\n".join([f"[{table}]", *(_key(each) for each in keys)]))
    return "\n".join(blocks) + "\n"


def _key(key: Key) -> str:
    text = f"{key.name} = {json.dumps(key.value, ensure_ascii=False)}"
    why = "".join(each if each.isprintable() else "?" for each in key.why)
    return f"{text:<{_WIDEST}}  # {why}" if len(text) <= _WIDEST else f"# {why}\n{text}"
