"""A headless Chromium over its debugging protocol, spoken on a pipe: nothing listens on a port."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


_ADOPT = """
import os, sys
read, write = (os.dup(int(number)) for number in sys.argv[1:3])
os.dup2(os.dup2(read, 100), 3), os.dup2(os.dup2(write, 101), 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""The browser reads its orders from descriptor 3 and answers on 4."""


class Browser:
    """One page; `events` is everything that the browser reported."""

    def __init__(self) -> None:
        assert CHROMIUM
        self._home = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        read, self._write = os.pipe()
        self._read, write = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-c", _ADOPT, str(read), str(write), CHROMIUM, "--headless", "--no-sandbox",
             "--disable-gpu",
             "--disable-background-networking", "--no-first-run", "--remote-debugging-pipe",
             f"--user-data-dir={self._home.name}", "about:blank"],
            pass_fds=(read, write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        os.close(read)
        os.close(write)
        self._number = 0
        self._buffer = b""
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = None
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    _session: str | None = None

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def show(self, path: Path, *, width: int, dark: bool) -> None:
        """Load a file and wait until it is there."""
        self.visit(path.as_uri(), width=width, dark=dark)

    def visit(self, url: str, *, width: int, dark: bool = False) -> None:
        """Load a page and wait until it is there."""
        self.events.clear()
        self.resize(width)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=url)
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())
        time.sleep(0.05)
        self.call("Runtime.evaluate", expression="1")

    def value(self, expression: str) -> Any:
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def resize(self, width: int) -> None:
        """Another window around the same page."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        self.call("Emulation.setDeviceMetricsOverride", **size)

    def wait_for(self, expression: str, seconds: float = 20.0) -> Any:
        """The value of `expression` as soon as it is true, across pages."""
        end = time.monotonic() + seconds
        while not (value := self._value_between_pages(expression)):
            assert time.monotonic() < end, f"{expression} stayed {value!r}"
            time.sleep(0.05)
        return value

    def click(self, selector: str) -> None:
        """Click, and return before what that leads to."""
        self.value(f"setTimeout(() => document.querySelector({json.dumps(selector)}).click())")

    def _value_between_pages(self, expression: str) -> Any:
        """None while one page gives way to the next."""
        try:
            return self.value(expression)
        except AssertionError as error:
            if any(word in str(error) for word in ("navigated", "context was destroyed", "Cannot find context")):
                return None
            raise

    def press(self, key: str, code: int, text: str = "") -> None:
        """One key, as a hand would."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, text=text)

    def complaints(self) -> list[str]:
        """What the console holds, and exceptions nobody caught."""
        entries = [e["params"] for e in self.events if e.get("method") == "Log.entryAdded"]
        thrown = [e["params"] for e in self.events if e.get("method") == "Runtime.exceptionThrown"]
        said = [e["params"] for e in self.events if e.get("method") == "Runtime.consoleAPICalled"]
        return [entry["entry"]["text"] for entry in entries] + [str(each) for each in thrown + said]

    def asked(self) -> list[str]:
        """Addresses of every request since the page was opened."""
        return [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]

    def close(self) -> None:
        os.close(self._write)
        self._process.terminate()
        self._process.wait(timeout=30)
        os.close(self._read)
        self._home.cleanup()

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            data = os.read(self._read, 1 << 16)
            assert data, "the browser went away"
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(line)
