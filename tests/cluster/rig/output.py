"""Progress, on stderr: stdout is for what a shell reads."""

import sys


def say(part: str, text: str) -> None:
    sys.stderr.write(f"{part:8} {text}\n")
    sys.stderr.flush()
