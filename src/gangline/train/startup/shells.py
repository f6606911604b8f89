"""What the exit code of a shell tells of the programs that it ran, by the text that it runs. Standard library only.

A shell ends with the code of its last command. Other failures are lost unless `set -e` and, in pipelines, `set -o
pipefail` are on, and those of background jobs always. The text is read, not run, with that of scripts that it starts:
what is not understood counts as lost.
"""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

SHELLS = ("sh", "bash", "dash", "ksh", "zsh", "ash")
MOST_SCRIPT_BYTES = 1 << 16
_ERREXIT = re.compile(r"(?m)^\s*set\s+(?:-o\s+\w+\s+)*-(?:\w*e\w*\b|o\s+errexit\b)")
_NO_ERREXIT = re.compile(r"\bset\s+\+(?:\w*e|o\s+errexit)")
_PIPEFAIL = re.compile(r"\bset\s[^;\n]{0,200}?o\s+pipefail\b")
_NOT_CODE = re.compile(
    r"(?P<word>'[^']*'|\$\{[^}]{0,200}\}|\"(?:[^\"\\`$]|\\.|\$(?!\())*\")"
    r"|\\\n|(?m:(?:^|(?<=\s))\#.*$)|\d?>&\d|&>>?|>&"
)
"""Quoted text and variables; comments and redirections: `;`, `|` and `&` have no meaning of their own there."""
_SUBSTITUTED = re.compile(r"\$\(([^()`]*)\)|`([^`]*)`")
_UNWAITED = re.compile(r"[<>]\(([^()`]*)\)")
"""Programs whose end no shell waits for: `<(program)`."""
_CHOSEN_END = re.compile(r"\b(?:exit|return|kill)\b")
_SEPARATORS = re.compile(r"(\|\||&&|[;\n|&])")
_BEFORE = re.compile(r"\s*(?:(?:exec|time|command|nohup|[A-Za-z_]\w*=\S*)\s+)*")
_KEYWORDS = re.compile(r"\s*(?:(?:if|then|elif|else|while|until|do|!|\{|\()\s+)*")
_OPAQUE = ("eval", "make", "parallel")
"""Commands whose own programs may fail, whatever is written around them."""
_MOST_SCRIPTS = 20
"""Scripts that are looked at; a shell that runs more may lose failures."""
_HARMLESS = re.compile(
    r"(?:\.|source)\s+\S*activate\b.*|(?:conda|micromamba)\s+activate\b.*"
    r"|(?::|\[|\[\[|awk|basename|cat|cd|cut|declare|df|dirname|du|egrep|exit|export|fgrep|find|grep|head|local|ls|ml"
    r"|module|printf|pwd|read|readlink|readonly|realpath|return|sed|set|shift|shopt|sort|tail|tee|test|tr|trap|ulimit"
    r"|umask|uniq|unset|wait|wc)(?:\s.*)?|[A-Za-z_]\w*=\S*"
)
"""Builtins, and programs that print text: what follows from their failure is seen elsewhere."""


class ShellCall(NamedTuple):
    """What a shell is started with."""

    text: str | None
    """The word after `-c`; None: there is none."""
    script: str | None
    errexit: bool
    pipefail: bool


def read_call(words: Sequence[str]) -> ShellCall | None:
    """The call of a shell that `words` are, its name first; None: they start something else."""
    if not words or os.path.basename(words[0]) not in SHELLS:
        return None
    errexit = pipefail = takes_text = False
    rest = iter(words[1:])
    for word in rest:
        if word[:1] != "-" or word in ("-", "--"):
            return ShellCall(word if takes_text else None, None if takes_text else word, errexit, pipefail)
        if word[1:2] == "-":
            continue
        takes_text, errexit = takes_text or "c" in word, errexit or "e" in word
        if word.endswith("o"):
            option = next(rest, "")
            pipefail, errexit = pipefail or option == "pipefail", errexit or option == "errexit"
    return ShellCall(None, None, errexit, pipefail)


def script_call(path: str, read: Callable[[str], str | None]) -> ShellCall | None:
    """The call of the shell that the first line of a script names; None: it is none that can be read, or of another."""
    text = read(path)
    if text is None or not text.startswith("#!"):
        return None
    words = text[2:].partition("\n")[0].split()
    return read_call([*(words[1:] if words and os.path.basename(words[0]) == "env" else words), path])


def loses_failures(call: ShellCall, *, tools: re.Pattern[str], read: Callable[[str], str | None]) -> bool:
    """Can a shell end with 0 though a program that it, or a script below it, runs has failed?

    Args:
        call: What the shell is started with.
        tools: Names of programs that may fail.
        read: Text of a script by its path; None: there is none, or it is not known.
    """
    waiting, calls = [call], {call}
    while waiting:
        shell_call = waiting.pop()
        text = shell_call.text if shell_call.text is not None or shell_call.script is None else read(shell_call.script)
        if text is None or len(calls) > _MOST_SCRIPTS:
            return True
        words = _code(text)
        errexit = (shell_call.errexit or _begins_strictly(words, tools)) and not _NO_ERREXIT.search(words)
        strict = _Strictness(errexit, shell_call.pipefail or _PIPEFAIL.search(words) is not None)
        if _loses_by_itself(words, tools, strict):
            return True
        shell_calls = list(_calls(words, read, strict))
        if None in shell_calls:
            return True
        below = {call for call in shell_calls if call is not None}
        waiting += below - calls
        calls |= below
    return False


class _Strictness(NamedTuple):
    """Options of a shell, by which failures of its programs become its own."""

    errexit: bool
    pipefail: bool


def _loses_by_itself(words: str, tools: re.Pattern[str], strict: _Strictness) -> bool:
    if _has_program(_UNWAITED, words, tools) or (not strict.errexit and _has_program(_SUBSTITUTED, words, tools)):
        return True
    separators = _from_first_program(_SUBSTITUTED.sub("x", words), tools)
    allowed = {"&&", *(["|"] if strict.pipefail else []), *([";", "\n", "||"] if strict.errexit else [])}
    return separators is not None and not allowed.issuperset(separators)


def _calls(words: str, read: Callable[[str], str | None], strict: _Strictness) -> Iterator[ShellCall | None]:
    """Shells that are started, and scripts that are run in this one; None: something that cannot be looked into."""
    for command in _SEPARATORS.split(_SUBSTITUTED.sub("x", words))[::2]:
        start = _KEYWORDS.match(command)
        before = _BEFORE.match(command, start.end() if start else 0)
        name, *rest = command[before.end() if before else 0 :].split() or [""]
        if name in (".", "source"):
            if _HARMLESS.fullmatch(f"{name} {' '.join(rest)}") is None:
                yield ShellCall(None, rest[0] if rest else None, *strict)
        elif os.path.basename(name) in _OPAQUE:
            yield None
        else:
            is_file = "/" in name or name.endswith(".sh")
            if (call := read_call([name, *rest]) or (script_call(name, read) if is_file else None)) is not None:
                yield call


def runs_tools_alone(text: str, *, tools: re.Pattern[str]) -> bool:
    """There is no program in `text` but builtins, tools, and programs that print text, and no end that it chooses."""
    words = _code(text)
    if _CHOSEN_END.search(words):
        return False
    has_program = _from_first_program(_SUBSTITUTED.sub("x", words), tools) is not None
    return not has_program and not any(_has_program(pattern, words, tools) for pattern in (_SUBSTITUTED, _UNWAITED))


def _code(text: str) -> str:
    return _NOT_CODE.sub(lambda match: "x" if match["word"] else "", text)


def _has_program(parts: re.Pattern[str], words: str, tools: re.Pattern[str]) -> bool:
    texts = ("".join(filter(None, match.groups())) for match in parts.finditer(words))
    return any(_from_first_program(text, tools) is not None for text in texts)


def _begins_strictly(words: str, tools: re.Pattern[str]) -> bool:
    """`set -e` comes before any program."""
    match = _ERREXIT.search(words)
    return match is not None and _from_first_program(words[: match.start()], tools) is None


def _from_first_program(words: str, tools: re.Pattern[str]) -> list[str] | None:
    """Separators that follow the first program; None: there is no program.

    A program that `|| exit` follows counts as none, because its failure is the shell's.
    """
    pieces = _SEPARATORS.split(words.rstrip("; \t\n"))
    commands, separators = pieces[::2], pieces[1::2]
    for number, command in enumerate(commands):
        is_checked = separators[number : number + 1] == ["||"] and commands[number + 1].split()[:1] == ["exit"]
        if not is_checked and _is_program(command, tools):
            return separators[number:]
    return None


def _is_program(command: str, tools: re.Pattern[str]) -> bool:
    before = _BEFORE.match(command)
    rest = command[before.end() if before else 0 :].strip()
    name = rest.split(maxsplit=1)[0].rpartition("/")[2] if rest else ""
    return bool(rest) and _HARMLESS.fullmatch(rest) is None and tools.fullmatch(name) is None
