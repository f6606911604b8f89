"""Help of every command and option is a sentence of its own, not the rest of the option's name."""

import re
from collections.abc import Iterator

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from gangline.cli.main import app

PREPOSITION = (
    "After|Also|As|At|Before|Below|Beside|By|For|From|In|Instead|Likewise|Of|On|Than|That|Then|To|Until|What|Where|"
    "Which|Who|Whose|With|Without"
)
PARTICIPLE = r"(?:[A-Z]\w+(?:ed|ing)|Given|Made|Seen|Taken|Written)\b,? "
BEHIND_PARTICIPLE = "(?:after|as|at|by|for|from|in|into|on|only|so|to|with)"
GLUED = re.compile(rf"(?:{PREPOSITION})\b|{PARTICIPLE}{BEHIND_PARTICIPLE}\b")
"""Beginnings that make sense only behind the name above them."""


def commands(command=None, name: str = "gangline") -> Iterator[tuple[str, object]]:
    command = command or get_command(app)
    yield name, command
    if isinstance(command, TyperGroup):
        context = command.make_context(name, [], resilient_parsing=True)
        for each in command.list_commands(context):
            yield from commands(command.get_command(context, each), f"{name} {each}")


def help_texts() -> Iterator[tuple[str, str]]:
    for name, command in commands():
        yield name, (command.help or "").strip()
        yield from (
            (f"{name} {max(each.opts, key=len)}", getattr(each, "help", None) or "")
            for each in command.params
            if "--help" not in each.opts
        )


def is_sentence(text: str) -> bool:
    return text.endswith(".") and not text[:1].islower() and not GLUED.match(text)


def test_every_help_text_is_a_sentence():
    found = dict(help_texts())
    assert len(found) > 300
    assert {name: text for name, text in found.items() if not is_sentence(text)} == {}


@pytest.mark.parametrize(
    "text",
    [
        "", "passed, refused, failed.", "Tokens to train on", "Of the model.", "That are trained on.", "By hand.",
        "Written to the record.", "Touched after each pass.", "Where they go.", "Given by one GPU.",
    ],
)  # fmt: skip
def test_what_is_no_sentence(text):
    assert not is_sentence(text)


@pytest.mark.parametrize("text", ["Tokens to train on.", "Delivered FLOP/s of one GPU.", "Ranks to show, as 3,7."])
def test_what_is_one(text):
    assert is_sentence(text)
