"""A program that is audited, in folders of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gangline.spec.python_environment import code_folders, python_path


class AuditWorkspace:
    """A code layer, and a folder that is no part of anything."""

    def __init__(self, root: Path) -> None:
        self.code, self.outside, self.reported = root / "home" / "code", root / "outside", root / "home" / "ran-0.jsonl"
        for each in (self.code, self.outside):
            each.mkdir(parents=True)
        (self.outside / "labels.txt").write_text("0 1 2")

    def environ(self, *path: str, **own: str) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"], "HOME": str(self.code.parent), "GANGLINE_RAN": str(self.reported),
            "GANGLINE_HOME": str(self.code.parent), "GANGLINE_LAYER": str(self.code), "OUTSIDE": str(self.outside),
            "PYTHONPATH": python_path(code_folders(self.code, path), None),
        } | own  # fmt: skip

    def run(self, text, *flags, path=(), **own):
        (self.code / "program.py").write_text(text)
        command = [sys.executable, *flags, "program.py"]
        environ = self.environ(*path, **own)
        return self.start(command, environ)

    def start(self, command, environ):
        """In a session of its own, as keepers start ranks."""
        return subprocess.run(
            command, cwd=self.code, env=environ, capture_output=True, text=True, check=False, start_new_session=True
        )

    def programs(self) -> list[str]:
        return [line["program"] for line in self.lines("started")]

    def lines(self, event: str) -> list[dict]:
        text = self.reported.read_text() if self.reported.exists() else ""
        return [line for line in map(json.loads, text.splitlines()) if line["event"] == event]


@pytest.fixture
def workspace(tmp_path):
    return AuditWorkspace(tmp_path)
