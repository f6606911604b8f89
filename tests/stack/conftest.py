"""A machine whose servers are stand-ins: small programs that answer where the real ones would."""

import os
import sys
from pathlib import Path

import pytest

from gangline.stack.home import StackHome
from gangline.stack.lifecycle import take_down

STAND_IN = """#!{python}
import json, os, re, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
name = os.path.basename(sys.argv[0])
if os.path.exists(os.path.join(os.path.dirname(sys.argv[0]), name + ".dies")):
    sys.exit("cannot read its licence")
address = os.environ.get("GF_SERVER_HTTP_PORT") or re.search(r"127.0.0.1:(\\d+)", " ".join(sys.argv))[1]
class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
        self.wfile.write(json.dumps({{"argv": sys.argv, "environ": dict(os.environ)}}).encode())
    def log_message(self, *_): pass
HTTPServer(("127.0.0.1", int(address)), Answer).serve_forever()
"""


class Machine:
    """Its PATH has what `install` put there; servers that a test leaves behind are stopped."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        self.repo = folder / "repo"
        self.bin.mkdir()
        self.repo.mkdir()
        self.home = StackHome.of(self.repo)

    def install(self, *names: str) -> None:
        for name in names:
            (self.bin / name).write_text(STAND_IN.format(python=sys.executable))
            (self.bin / name).chmod(0o755)

    def break_down(self, name: str) -> None:
        (self.bin / f"{name}.dies").touch()


@pytest.fixture
def machine(tmp_path, monkeypatch):
    made = Machine(tmp_path)
    monkeypatch.setenv("PATH", str(made.bin) + os.pathsep + os.path.dirname(sys.executable))  # noqa: PTH120
    monkeypatch.setenv("GANGLINE_TOOLS", str(tmp_path / "none"))
    monkeypatch.setattr("gangline.stack.servers._service", _stand_in_service(made))
    yield made
    take_down(made.home, forget=True)


def _stand_in_service(machine: Machine):
    from gangline.stack.servers import StackServer

    def service(home, ports):
        address = f"127.0.0.1:{ports['service']}"
        program = machine.bin / "service"
        return StackServer(
            name="service", kind="gangline serve", program=str(program) if program.exists() else None,
            install="a stand-in", url=f"http://{address}", ready=f"http://{address}/healthz", arguments=(address,),
            reads=(home.site,),
        )  # fmt: skip

    return service
