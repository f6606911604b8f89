"""`gangline infer` as a user calls it: the request that it prints is answered, and SIGTERM leaves nothing."""

import json
import os
import shlex
import signal
import socket
import subprocess
import sys

import pytest
from tests.registry.passed_run import copy_of, template

from gangline.errors import NotInstalledError
from gangline.line.gangs.infer_server import infer_python
from gangline.spec.config.site import Site

pytestmark = [pytest.mark.tools, pytest.mark.timeout(300)]


@pytest.fixture
def environ(tmp_path, tmp_path_factory):
    """Of a shell in a repository whose model has a version."""
    try:
        python = infer_python(Site(), os.environ)
    except NotInstalledError as error:
        pytest.skip(f"needs the environment of make infer: {error}")
    workspace = copy_of(template(tmp_path_factory, "published")[0], tmp_path / "root")
    (tmp_path / "tmp").mkdir()
    own = {"PWD": str(workspace.repo), "TMPDIR": str(tmp_path / "tmp")}
    return {**os.environ, **workspace.environ, **own, "GANGLINE_INFER": str(python).removesuffix("/bin/python")}


def test_the_printed_request_is_answered_and_sigterm_drains(environ, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    command = [sys.executable, "-m", "gangline", "infer", "bytegpt", "--port", str(port)]
    with subprocess.Popen(
        command, cwd=environ["PWD"], env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as server:
        try:
            said = []
            while not said or not said[-1].startswith("try "):
                said.append(server.stdout.readline())
                assert said[-1], said
            curl = shlex.split(said[-1].removeprefix("try"))
            answer = subprocess.run([*curl, "-sf"], capture_output=True, check=True)
            assert json.loads(answer.stdout)["outputs"][0]["shape"][0] == 1
        finally:
            server.send_signal(signal.SIGTERM)
        rest = server.stdout.read()
    assert (server.returncode, "drain" in rest) == (0, True), rest
    assert list((tmp_path / "tmp").iterdir()) == []
