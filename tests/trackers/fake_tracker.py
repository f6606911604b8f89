"""A tracker and its writer as a program in place of an interpreter: it keeps what it is sent, and fails as it is asked.

It stands at the border of the process: `python` of a table names it, and it answers the driver's lines. It keeps points
as a server does that knows each (metric, step, time) once.
"""

import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from gangline.spec.config.site_tables import TrackTable
from gangline.trackers.protocol import WriterSettings
from gangline.trackers.writer_process import WriterProcess

PROGRAM = """#!{python}
import json, os, signal, sys, time
from pathlib import Path

folder = Path({folder!r})
with (folder / "pids").open("a") as file:
    print(os.getpid(), file=file)
for line in sys.stdin:
    ((call, content),) = json.loads(line).items()
    way = (folder / "way").read_text() if call not in ("open", "close") else "takes"
    answer = {{"done": None}}
    if way.startswith("slow"):
        time.sleep(float(way.split()[1]))
    if way == "hangs":
        time.sleep(600)
    if way == "dies":
        sys.exit(3)
    if way == "fails":
        answer = {{"failed": "503 Service Unavailable", "refused": False}}
    elif way == "refuses":
        answer = {{"failed": "wanted a token, found another", "refused": True}}
    else:
        with (folder / "calls.jsonl").open("a") as file:
            print(json.dumps([call, content]), file=file)
    print(json.dumps(answer), flush=True)
    with (folder / "count").open("a") as file:
        print(call, file=file)
    deadly = (folder / "deadly").read_text().split() if (folder / "deadly").exists() else []
    if str(len((folder / "count").read_text().split())) in deadly:
        os.kill(os.getppid(), signal.SIGKILL)
"""


@dataclass
class FakeTracker:
    folder: Path

    @staticmethod
    def at(folder: Path) -> "FakeTracker":
        folder.mkdir(parents=True, exist_ok=True)
        program = folder / "python"
        program.write_text(PROGRAM.format(python=sys.executable, folder=str(folder)))
        program.chmod(0o755)
        made = FakeTracker(folder)
        made.goes("takes")
        return made

    def goes(self, way: str) -> None:
        """`takes`, `slow SECONDS`, `hangs`, `dies`, `fails` or `refuses` each call from now on."""
        (self.folder / "next-way").write_text(way)
        (self.folder / "next-way").rename(self.folder / "way")

    def kills_after(self, *calls: int) -> None:
        """The driver dies once it has been answered these calls, counted over all writers."""
        (self.folder / "deadly").write_text(" ".join(map(str, calls)))

    @property
    def table(self) -> TrackTable:
        return TrackTable(kind="mlflow", url="http://tracker.example", python=str(self.folder / "python"),
                          every_seconds=0.1)  # fmt: skip

    def start(self, *, seconds: float = 10.0) -> WriterProcess:
        settings = WriterSettings(kind="mlflow", url="http://tracker.example", token="hush-hush-hush")
        return WriterProcess(settings, table=self.table, environ=os.environ, seconds=seconds)

    def calls(self) -> list[list]:
        file = self.folder / "calls.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def names(self) -> list[str]:
        return [name for name, _ in self.calls()]

    def sent(self) -> list[tuple]:
        """All points in the order in which they came, again and again."""
        return [tuple(point) for name, content in self.calls() if name == "write" for point in content]

    def history(self) -> list[tuple]:
        return sorted(set(self.sent()))

    def pids(self) -> list[int]:
        file = self.folder / "pids"
        return [int(line) for line in file.read_text().split()] if file.exists() else []

    def wait_for(self, condition, *, seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, self.names()
            time.sleep(0.02)
