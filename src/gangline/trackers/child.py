"""Process that writes one run into one tracker: JSON lines on stdin, one line of answer to each on stdout.

It runs as a script, in an interpreter that may have the tracker's package and nothing of gangline: the standard library
is all that it needs, and it finds its own room by the place of its file. No other process imports tracker libraries.

    {"open": {"kind": "wandb", ...}}          {"done": null}
    {"write": [["loss", 1, 1764385200000, 2.5]]}    {"failed": "ConnectionError: ...", "refused": false}
"""

import json
import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from gangline.trackers.protocol import Writer

ENDING_SECONDS = 5.0
"""How long a writer whose driver has gone may still write."""
MOST_CAUSE = 300


class WriterCalls:
    """One tracker's writer, from `open` to `close`."""

    def __init__(self) -> None:
        self._writer: Writer | None = None
        self._settings: Any = None

    def answer(self, message: dict[str, Any]) -> dict[str, Any]:
        """Do what `message` asks; a failure of the tracker is an answer, too."""
        from gangline.trackers.protocol import TrackerError

        ((call, content),) = message.items()
        try:
            result = self._do(call, content)
        except (TrackerError, ImportError) as error:
            return {"failed": _cause(error), "refused": True}
        except Exception as error:  # whatever a library raises: the driver decides, and tries again
            return {"failed": _cause(error), "refused": False}
        return {"done": result}

    def _do(self, call: str, content: Any) -> Any:
        from gangline.trackers.protocol import Point, TrackedRun, WriterSettings

        if call == "open":
            self._settings = WriterSettings(**content)
            self._writer = import_module(f"gangline.trackers.{self._settings.kind}").open_writer(self._settings)
            return None
        if call == "model":
            from gangline.trackers.mlflow import mirror_model
            from gangline.trackers.protocol import MirroredModel

            return mirror_model(self._settings, MirroredModel.read(content))
        assert self._writer is not None, "a driver opens first"
        if call == "write":
            self._writer.write([Point(*each) for each in content])
        elif call == "close":
            self._writer.close()
        elif call == "look":
            found = self._writer.look(TrackedRun(**content))
            return None if found is None else asdict(found)
        else:
            {"begin": self._writer.begin, "finish": self._writer.finish}[call](TrackedRun(**content))
        return None


def _cause(error: Exception) -> str:
    """What went wrong, in a line."""
    said = " ".join(str(error).split())[:MOST_CAUSE]
    return said if type(error).__name__ == "TrackerError" else f"{type(error).__name__}: {said}"


def serve(lines: Iterable[str], answers: TextIO) -> None:
    """Answer each line until `close` was answered or no line comes any more."""
    calls = WriterCalls()
    for line in lines:
        message = json.loads(line)
        answers.write(json.dumps(calls.answer(message)) + "\n")
        answers.flush()
        if "close" in message:
            return


def _lines_until_the_driver_is_gone(stdin: TextIO) -> Iterator[str]:
    """Lines of `stdin`; once it ends, this process has ENDING_SECONDS, whatever it waits for."""
    lines: SimpleQueue[str | None] = SimpleQueue()

    def read_lines() -> None:
        for line in stdin:
            lines.put(line)
        lines.put(None)
        threading.Event().wait(ENDING_SECONDS)
        _end_group()

    threading.Thread(target=read_lines, name="stdin", daemon=True).start()
    while (line := lines.get()) is not None:
        yield line


def _end_group() -> None:
    """End this process and those that the tracker's library started; the driver gave them a session of their own."""
    if os.getsid(0) == os.getpid():
        with suppress(OSError):
            os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _load_own_package() -> None:
    """The package `gangline` is the one that this file lies in, and nothing else of its folder is importable."""
    folder = Path(__file__).resolve().parents[1]
    spec = spec_from_file_location("gangline", folder / "__init__.py", submodule_search_locations=[str(folder)])
    assert spec is not None
    assert spec.loader is not None
    sys.modules["gangline"] = package = module_from_spec(spec)
    spec.loader.exec_module(package)


def main() -> None:
    """Answer the driver on what was stdout; what libraries print there goes to stderr."""
    _load_own_package()
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)
        serve(_lines_until_the_driver_is_gone(sys.stdin), answers)
    os._exit(0)  # threads of a library hold nothing up


if __name__ == "__main__":
    main()
