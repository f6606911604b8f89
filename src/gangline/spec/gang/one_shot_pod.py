"""One-shot pods: the bundle that a pod runs one module from, and the format of the result in its log.

A bundle is one tar: CALL (a `ModuleCall`), CODE (a code layer) where there is one, and below FILES what the module
reads as `../NAME`. A result is
    <RS>stdout BASE64        a part of what the module wrote there; RS is the byte 0x1e (RFC 7464)
    <RS>stderr BASE64        likewise
    <RS>exit CODE            the end; `<RS>exit -` after a timeout
Other lines of the log come from model code, which may also write lines like these: they only change its own result.
"""

import binascii
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from gangline.spec.codec import Document
from gangline.spec.gang.pod_output import RECORD_SEPARATOR

CALL, CODE, FILES = "call.json", "code.zip", "files"
BUNDLES = "once/"
"""Prefix of bundles in a store. Gangs neither read nor write there; each is deleted with its pod, or by a sweep."""
BUNDLE_SECONDS = 3600.0
"""How long the URL of one is good: longer than its driver waits for the start of the pod."""
MOST_STDOUT_BYTES = 4 * 2**20
MOST_STDERR_BYTES = 2**18
"""Kubelets keep 10 MiB of a log, and this is a third longer there."""
MOST_LINES_CHARACTERS = 8 * 2**20
"""Bound on the lines of an answer; what is longer was not written by `to_lines`."""
_PART_BYTES = 9_000
"""Container runtimes split lines of more than 16 KiB."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModuleCall(Document):
    """`python -m MODULE ARGUMENTS...`, ended after so many seconds."""

    module: str
    arguments: tuple[str, ...]
    seconds: float
    env: dict[str, str] = field(default_factory=dict)
    path: tuple[str, ...] = ()
    """Folders of the code layer on the path of Python, in addition to its top."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CodeBundle(Document):
    """Where a pod finds its bundle; opens no other object of the store, and none for long."""

    url: str
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ModuleOutput:
    """How a module ended, and what it wrote."""

    exit_code: int | None
    """None: its time was up."""
    stdout: bytes
    stderr: bytes


def to_lines(answer: ModuleOutput) -> Iterator[str]:
    """The beginning of what it said on stdout, the end of what it said on stderr."""
    streams = {"stdout": answer.stdout[:MOST_STDOUT_BYTES], "stderr": answer.stderr[-MOST_STDERR_BYTES:]}
    for stream, data in streams.items():
        for at in range(0, len(data), _PART_BYTES):
            yield f"{RECORD_SEPARATOR}{stream} {b64encode(data[at : at + _PART_BYTES]).decode()}"
    yield f"{RECORD_SEPARATOR}exit {'-' if answer.exit_code is None else answer.exit_code}"


def from_lines(lines: Iterable[str]) -> ModuleOutput | None:
    """The answer in a log; None: it is not there as a whole. Reads no more than an answer may be long."""
    streams = {"stdout": bytearray(), "stderr": bytearray()}
    left = MOST_LINES_CHARACTERS
    for line in lines:
        left -= len(line)
        if left < 0:
            return None
        word, _, text = line.removeprefix(RECORD_SEPARATOR).partition(" ")
        if not line.startswith(RECORD_SEPARATOR):
            continue
        try:
            if word == "exit":
                code = None if text == "-" else int(text)
                return ModuleOutput(exit_code=code, stdout=bytes(streams["stdout"]), stderr=bytes(streams["stderr"]))
            streams[word] += b64decode(text, validate=True)
        except (ValueError, KeyError, binascii.Error):
            return None
    return None
