"""Grammars of single values in configuration files. Pure text."""

import re
from ipaddress import ip_network

SLUG = re.compile(r"[a-z][a-z0-9-]{0,19}")
TASK = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
SHA256 = re.compile(r"[0-9a-f]{64}")
IMAGE = re.compile(r"[\w./:-]+@sha256:[0-9a-f]{64}")
LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
IDENTITY = re.compile(r"[A-Za-z0-9:+/=_-]{4,128}")
LINE_KEY = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+){1,8}")
NAME = re.compile(r"[A-Za-z_][\w.-]{0,63}")
PYTHON = re.compile(r"3\.[0-9]{1,2}(\.[0-9]{1,2})?")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
CHECKPOINT = re.compile(
    r"(?P<run>runs/(?P<project>[^/]+)/(?:[0-9a-f]{40}|[0-9a-f]{64})/[^/]+)(?:/gang)?/checkpoints/step-\d{8}"
)
"""Folder of one."""
STORE_KEY = re.compile(r"(?!.*(^|/)\.{1,2}(/|$))[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*")
_GIT = re.compile(r"(?:\.git|git~1)[. ]*(?::.*)?", re.IGNORECASE | re.DOTALL)
_LEFT_OUT_OF_NAMES = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")
REPOSITORY = re.compile(r"[/~][^\0\n]*|[^\s\0/@:][^\s\0]*[/:][^\s\0]+")
URL = re.compile(r"https?://[A-Za-z0-9.\[\]:_-]+(/[^\s@]*)?")
STORE_FORMS = "file:PATH or s3://BUCKET/PREFIX"
STORE_URL = re.compile(r"file:[^\0?#]+|s3://[a-z0-9][a-z0-9.-]*(/[A-Za-z0-9._/-]*)?")
AWS_IDENTITY = re.compile(r"aws:(role|cli|(profile|cli):[A-Za-z0-9_.@+/-]+)")
LISTEN = re.compile(r"(?P<host>\[[0-9a-f:]+\]|[A-Za-z0-9.-]+):(?P<port>\d{1,5})")
LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})

_CRON_RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
_CRON_PART = re.compile(r"(\*|(\d{1,2})(-(\d{1,2}))?)(/(\d{1,2}))?")


def is_git_name(name: str) -> bool:
    """Whether some file system takes `name` for `.git`, by case, characters left out, a short name or an ending."""
    return _GIT.fullmatch(_LEFT_OUT_OF_NAMES.sub("", name)) is not None


def is_network(text: str) -> bool:
    """An IP address or network, not all of them."""
    try:
        return ip_network(text).prefixlen > 0
    except ValueError:
        return False


def is_cron(text: str) -> bool:
    """Five fields of numbers, ranges, lists and steps, each within its range."""
    words = text.split()
    return len(words) == 5 and all(
        _is_cron_field(word, low, high) for word, (low, high) in zip(words, _CRON_RANGES, strict=True)
    )


def _is_cron_field(word: str, low: int, high: int) -> bool:
    for part in word.split(","):
        match = _CRON_PART.fullmatch(part)
        if not match:
            return False
        first, last, step = match[2], match[4], match[6]
        inside = all(low <= int(number) <= high for number in (first, last) if number)
        if not inside or (first and last and int(first) > int(last)) or (step and int(step) == 0):
            return False
    return True
