"""Groovy as tokens and blocks: as much of it as a pipeline of ours needs, and nothing that is executed."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

_SPACE = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)+", re.DOTALL)
_TOKEN = re.compile(
    r"(?P<constant>'''(?:\\.|[^\\])*?'''|'(?:\\.|[^\\'\n])*')"
    r'|(?P<text>"""(?:\\.|[^\\])*?"""|"(?:\\.|[^\\"\n])*")'
    r"|(?P<number>\d[\w.]*)"
    r"|(?P<name>[A-Za-z_$][\w$]*)"
    r"|(?P<sign>==~|=~|==|!=|<=|>=|&&|\|\||->|\?\.|\?:|\+\+|--|\+=|-=|\*\.|\.&|\.\.|[-+*/%=<>!?:.,;@&|^~(){}\[\]])",
    re.DOTALL,
)
_PATTERN = re.compile(r"/(?:\\/|[^/\n])+/")
_BEFORE_PATTERN = {"==~", "=~", "=", "(", ",", "return", ":"}
_PAIRS = {"(": ")", "{": "}", "[": "]"}


@dataclass(frozen=True, slots=True)
class Token:
    kind: str
    """constant (single quotes), text (double quotes), pattern, number, name, sign or other."""
    text: str
    line: int

    @property
    def value(self) -> str:
        """What a string holds, its escapes undone; a name or sign itself."""
        if self.kind not in ("constant", "text"):
            return self.text
        size = 3 if self.text[:3] in ("'''", '"""') else 1
        return re.sub(r"\\(.)", lambda found: {"n": "\n", "t": "\t"}.get(found[1], found[1]), self.text[size:-size])

    @property
    def holes(self) -> list[str]:
        """What is put into a string of double quotes: `name` of `${name}` and `$name`."""
        if self.kind != "text":
            return []
        found = re.findall(r"(?<!\\)\$(?:\{([^}]*)\}|([A-Za-z_][\w.]*))", self.text)
        return [braced.strip() or bare for braced, bare in found]


@dataclass(frozen=True, slots=True)
class Block:
    """`NAME(ARGUMENTS) { INSIDE }`, as sections of a pipeline are."""

    name: str
    arguments: tuple[Token, ...]
    inside: tuple[Token, ...]
    blocks: "tuple[Block, ...]" = field(default=())

    def named(self, name: str) -> "list[Block]":
        return [block for block in self.blocks if block.name == name]


def tokens(text: str) -> list[Token]:
    """All of them; what is no Groovy that we know is a token of kind `other`."""
    found: list[Token] = []
    place = 0
    while place < len(text):
        if space := _SPACE.match(text, place):
            place = space.end()
            continue
        match = _pattern(text, place, found) or _TOKEN.match(text, place)
        kind = (match.lastgroup or "pattern") if match else "other"
        word = match[0] if match else text[place]
        found.append(Token(kind, word, text.count("\n", 0, place) + 1))
        place += len(word)
    return found


def _pattern(text: str, place: int, before: Sequence[Token]) -> re.Match[str] | None:
    return _PATTERN.match(text, place) if before and before[-1].text in _BEFORE_PATTERN else None


def is_balanced(words: Sequence[Token]) -> bool:
    """Is every bracket closed by its own?"""
    wanted: list[str] = []
    for word in words:
        if word.kind == "sign" and word.text in _PAIRS:
            wanted.append(_PAIRS[word.text])
        elif word.kind == "sign" and word.text in _PAIRS.values() and (not wanted or wanted.pop() != word.text):
            return False
    return not wanted


def closing(words: Sequence[Token], opening: int) -> int:
    """Where the bracket that opens at `opening` is closed; the last place where it never is."""
    depth = 0
    for place in range(opening, len(words)):
        if words[place].kind == "sign":
            depth += (words[place].text in _PAIRS) - (words[place].text in _PAIRS.values())
        if depth == 0:
            return place
    return len(words) - 1


def blocks(words: Sequence[Token]) -> tuple[Block, ...]:
    """The blocks of this level, in order, each with its own."""
    return tuple(_blocks(words))


def _blocks(words: Sequence[Token]) -> Iterator[Block]:
    place = 0
    while place < len(words):
        word = words[place]
        if word.kind == "name":
            start, end = place + 1, place + 1
            if start < len(words) and words[start].text == "(":
                end = closing(words, start) + 1
            if end < len(words) and words[end].text == "{":
                last = closing(words, end)
                inside = tuple(words[end + 1 : last])
                yield Block(word.text, tuple(words[start + 1 : end - 1]), inside, blocks(inside))
                place = last
        place += 1


def strings(words: Sequence[Token]) -> str:
    """The constant that these tokens add up to.

    Raises:
        ValueError: They are no constant.
    """
    parts, signs = words[::2], words[1::2]
    if not words or any(part.kind != "constant" for part in parts) or any(sign.text != "+" for sign in signs):
        raise ValueError(" ".join(word.text for word in words))
    return "".join(part.value for part in parts)


def arguments(words: Sequence[Token]) -> dict[str, tuple[Token, ...]]:
    """Arguments of a call by name, the ones without by position: `script: 'x', 1` is {script: .., 1: ..}."""
    found: dict[str, tuple[Token, ...]] = {}
    for number, part in enumerate(_split(words)):
        if len(part) > 2 and part[0].kind == "name" and part[1].text == ":":
            found[part[0].text] = part[2:]
        elif part:
            found[str(number)] = part
    return found


def _split(words: Sequence[Token]) -> Iterator[tuple[Token, ...]]:
    part: list[Token] = []
    depth = 0
    for word in words:
        if word.kind == "sign":
            depth += (word.text in _PAIRS) - (word.text in _PAIRS.values())
        if word.text == "," and depth == 0:
            yield tuple(part)
            part = []
        else:
            part.append(word)
    yield tuple(part)
