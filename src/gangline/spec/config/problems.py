"""Problems of a configuration file: each with its key, what was wanted, what was found and what works."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gangline.errors import ConfigError

MOST_SHOWN = 50
SECRET_KEYS = frozenset({"credentials", "token", "tokens", "hook_secret", "key"})
_LONGEST_VALUE = 60


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """One thing that is wrong with a file."""

    key: str
    """`table.key`; empty: the file as a whole."""
    wanted: str
    found: str
    works: str = ""
    """What the reader can write instead."""

    def __str__(self) -> str:
        text = f"wanted {self.wanted}, found {self.found}"
        text = f"{self.key}: {text}" if self.key else text
        return printable(f"{text}; {self.works}" if self.works else text)


class FileError(ConfigError):
    """A file with problems; the message has a line for each, `file: key: wanted .., found .., what works`."""

    def __init__(self, file: str, problems: Sequence[ConfigProblem]) -> None:
        self.file = file
        self.problems = list(problems)
        lines = [f"{file}: {problem}" for problem in self.problems[:MOST_SHOWN]]
        if hidden := len(self.problems) - len(lines):
            lines.append(f"{file}: and {hidden} problems more")
        super().__init__("\n".join(lines))


def printable(text: str) -> str:
    """`text` in one line that no terminal obeys: what is not printable is escaped, so that a push paints nothing."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def refusal(message: str) -> ConfigError:
    """A ConfigError about text that people sent."""
    return ConfigError(printable(message))


def at_least(key: str, value: object, least: float, works: str = "") -> Iterator[ConfigProblem]:
    """A problem where `value` is a number below `least`; words and None are no numbers."""
    if isinstance(value, (int, float)) and value < least:
        yield ConfigProblem(key, f"at least {least:g}", show(value), works)


def show(value: Any) -> str:
    """`value` as a message shows it: TOML words, one short line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, (list, tuple)):
        return f"a list of {len(value)}"
    if isinstance(value, int) and value.bit_length() > 64:
        return f"an integer of {value.bit_length()} bits"
    return shorten(repr(value) if isinstance(value, (str, int, float)) else f"{type(value).__name__} {value}")


def found(key: str, value: Any) -> str:
    """`show`, but a key that holds a secret never has its value repeated."""
    name = key.rpartition(".")[2].partition("[")[0]
    return "a value that is not shown" if name in SECRET_KEYS else show(value)


def shorten(text: str) -> str:
    """`text`, cut where a line would overflow."""
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


def one_of(names: Sequence[str]) -> str:
    """`one of a, b, c`."""
    return f"one of {', '.join(names)}"


def nearest_multiples(value: int, unit: int) -> str:
    """The two multiples of `unit` next to `value`, as a message names them."""
    below = value // unit * unit
    return f"{below} or {below + unit}" if below else f"{unit}"
