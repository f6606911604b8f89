"""The linter of pipelines and steps: says what a reviewer would have to find, and refuses what it does not know."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.jenkins import steps
from tests.jenkins.groovy import Block, Token, arguments, blocks, closing, is_balanced, strings, tokens

from gangline.spec.record import STAGES

_CALL = ["def", "call", "(", ")", "{"]


@dataclass(frozen=True, slots=True)
class Problem:
    rule: str
    line: int
    found: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.rule}: {self.found}"


def lint_step(text: str) -> list[Problem]:
    """A file of `vars/`: one `call`, known steps, constant scripts."""
    words = tokens(text)
    return [*_text(text), *_words(words), *_scripts(words)]


def lint_pipeline(text: str) -> list[Problem]:
    """The library's: one `call` with a declarative pipeline of our ten stages, and nothing beside it."""
    words = tokens(text)
    if [word.text for word in words[:5]] != _CALL or closing(words, 4) != len(words) - 1:
        return [*_text(text), Problem("one call and nothing beside it", 1, _at(words, 0))]
    inside = words[5:-1]
    return [*_text(text), *_shape(inside), *_words(inside, declarative=True), *_scripts(inside)]


def scripts(text: str) -> list[str]:
    """What is given to a shell, of a file without problems."""
    words = tokens(text)
    return [strings(_script(given)) for _, given in calls(words, "sh")]


def calls(words: Sequence[Token], name: str) -> Iterator[tuple[Token, tuple[Token, ...]]]:
    """Each call of a step, with the tokens of its arguments."""
    for place, word in enumerate(words):
        if word.kind == "name" and word.text == name and place + 1 < len(words) and words[place + 1].text == "(":
            yield word, tuple(words[place + 2 : closing(words, place + 1)])


def _text(text: str) -> Iterator[Problem]:
    """Before any token: Groovy undoes these escapes first, so that nothing below would see what they hide."""
    for number, line in enumerate(text.splitlines(), 1):
        if re.search(r"\\u+[0-9a-fA-F]{4}", line):
            yield Problem("escaped letter", number, line.strip())
        if any(ord(letter) > 126 or (ord(letter) < 32 and letter != "\t") for letter in line):
            yield Problem("letter that is not ASCII", number, ascii(line.strip()))


def _words(words: Sequence[Token], *, declarative: bool = False) -> Iterator[Problem]:
    known = _locals(words)
    for place, word in enumerate(words):
        before, after = _at(words, place - 1), _at(words, place + 1)
        if word.kind == "other" or word.text in ("@", ";", ".&", "*.", "?."):
            yield Problem("sign", word.line, word.text)
        elif _is_roundabout(word, words, place):
            yield Problem("member that is named by a value", word.line, before + word.text)
        elif word.kind == "text":
            holes = [hole for hole in word.holes if hole not in known | steps.SHOWN]
            yield from (Problem("word of a stranger in a string", word.line, hole) for hole in holes)
        elif word.kind == "name" and (rule := _judge(word.text, before, after, known, declarative, words, place)):
            yield Problem(rule, word.line, word.text)


def _is_roundabout(word: Token, words: Sequence[Token], place: int) -> bool:
    """`env['KEY']`, `env.'KEY'`: who reads along cannot tell which."""
    before = words[place - 1] if place else None
    if before is None:
        return False
    ends = before.text in (")", "]") or (before.kind == "name" and before.text not in ("in", "return"))
    return (before.text == "." and word.kind != "name") or (word.text == "[" and ends)


def _judge(
    name: str, before: str, after: str, known: set[str], declarative: bool, words: Sequence[Token], place: int
) -> str | None:
    if before == ".":
        return _judge_member(name, _at(words, place - 2), after)
    if after == ":" and before in ("(", ",", "["):
        return None  # the name of an argument
    if after == "(" and name not in steps.WORDS:
        return None if name in _callable(known, declarative) else "step that no plugin of ours has"
    if declarative:
        return None if name in _directives() | {"none", "true", "false"} else "name"
    return None if name in known | steps.WORDS | steps.TYPES else "name"


def _judge_member(name: str, owner: str, after: str) -> str | None:
    if after == "(":
        return None if name in steps.METHODS else "method"
    return None if name in steps.PROPERTIES.get(owner, set()) else "property"


def _callable(known: set[str], declarative: bool) -> set[str]:
    if declarative:
        return steps.OWN | set(steps.OPTIONS) | set(steps.PARAMETERS) | {"stage"}
    return steps.OWN | set(steps.STEPS) | {"call", "body"} & (known | {"call"})


def _directives() -> set[str]:
    return {"pipeline", "steps", *steps.SECTIONS, *steps.ENDINGS}


def _locals(words: Sequence[Token]) -> set[str]:
    """Names that the file itself declares: after a type."""
    found = set()
    for place, word in enumerate(words):
        following = _at(words, place + 1)
        is_typed = word.text in steps.TYPES or (word.text == ">" and _at(words, place - 2) == "<")
        if is_typed and re.fullmatch(r"[a-z]\w*", following) and following not in steps.WORDS:
            found.add(following)
    return found - set(steps.STEPS) - steps.OWN


def _at(words: Sequence[Token], place: int) -> str:
    return words[place].text if 0 <= place < len(words) else ""


def _scripts(words: Sequence[Token]) -> Iterator[Problem]:
    for word, given in calls(words, "sh"):
        try:
            strings(_script(given))
        except ValueError as error:
            yield Problem("script that is no constant", word.line, str(error))
    for word, given in calls(words, "node"):
        if len(given) != 1 or not steps.NODE.fullmatch(given[0].value):
            yield Problem("node of somebody else", word.line, " ".join(each.text for each in given))


def _script(given: Sequence[Token]) -> tuple[Token, ...]:
    named = arguments(given)
    return named.get("script") or named.get("0") or ()


def _shape(words: Sequence[Token]) -> Iterator[Problem]:
    found = blocks(words)
    alone = words and words[0].text == "pipeline" and len(found) == 1 and closing(words, 1) == len(words) - 1
    if not alone or not is_balanced(words):
        yield Problem("one pipeline and nothing beside it", words[0].line if words else 1, _at(words, 0))
        return
    pipeline = found[0]
    inside = " ".join(word.text for word in pipeline.inside[:3])
    sections = ["agent", *(block.name for block in pipeline.blocks)]
    if not inside.startswith("agent none options") or sections != list(steps.SECTIONS):
        yield Problem("sections", words[0].line, f"{inside} .. {sections}")
        return
    yield from _stages(pipeline.named("stages")[0])
    endings = [block.name for block in pipeline.named("post")[0].blocks]
    if endings != list(steps.ENDINGS):
        yield Problem("endings", words[0].line, str(endings))


def _stages(stages: Block) -> Iterator[Problem]:
    names = [block.arguments[0].value if block.arguments else "" for block in stages.blocks]
    if names != [stage.capitalize() for stage in STAGES]:
        yield Problem("stages", stages.inside[0].line, ", ".join(names))
    for stage, block in zip(names, stages.blocks, strict=True):
        bodies = [step.inside for step in block.named("steps")]
        said = [" ".join(word.text for word in body) for body in bodies]
        wanted = [f"{step} ( '{stage.lower()}' )" for step in ("gangStage", "gangFollow")]
        if block.name != "stage" or said not in (
            [["gangResolve ( )"]] if stage == "Resolve" else [[w] for w in wanted]
        ):
            yield Problem("one command a stage", stages.inside[0].line, f"{block.name} {stage}: {said}")
