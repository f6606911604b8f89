"""IN2, IN7: the real server of KServe, in the sandbox, with the environment of `make infer`."""

import json
import os
import socket
import subprocess
import threading
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.infer.model_folder import code, write_model

from gangline.errors import IntegrityError, NotInstalledError
from gangline.line.gangs.infer_server import ServedFolder, infer_python, started_server
from gangline.spec.config.site import Site

pytestmark = [pytest.mark.tools, pytest.mark.timeout(300)]
TRITON = """
import sys
import numpy as np
import tritonclient.http as client
server = client.InferenceServerClient(sys.argv[1])
assert server.is_server_ready() and server.is_model_ready("line")
[found] = server.get_model_metadata("line")["inputs"]
assert found == {"name": "x", "datatype": "FP32", "shape": [-1, 4]}, found
for binary in (False, True):
    given = client.InferInput("x", [2, 4], "FP32")
    given.set_data_from_numpy(np.ones((2, 4), "float32"), binary_data=binary)
    wanted = client.InferRequestedOutput("output", binary_data=binary)
    print(server.infer("line", [given], outputs=[wanted]).as_numpy("output").ravel().tolist())
"""


@pytest.fixture(scope="module")
def python():
    try:
        return infer_python(Site(), os.environ)
    except NotInstalledError as error:
        pytest.skip(f"needs the environment of make infer: {error}")


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def started(root, port, *options, folder=None, token=None):
    served = ServedFolder(
        folder=folder or write_model(root / "model"), code=code(), name="line", version=1
    )  # fmt: skip
    options = ("--port", str(port), *options)
    return started_server(served, root, site=Site(), environ=os.environ, options=options, token=token)


@pytest.fixture(scope="module")
def server(python, tmp_path_factory):
    port = free_port()
    with started(tmp_path_factory.mktemp("served"), port, "--max-request-bytes", "20000") as server:
        assert server.report(120)["golden"] == "the same within 0 on cpu"
        server.port = port
        yield server


def request(*values, shape=None, **replaced):
    given = {
        "name": "x",
        "shape": shape or [len(values), 4],
        "datatype": "FP32",
        "data": [[each] * 4 for each in values],
    }
    return json.dumps({"inputs": [given | replaced]}).encode()


def ask(port, body, path="/v2/models/line/infer", headers=()):
    """(status, answer)."""
    asked = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=body, headers=dict(headers))
    try:
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read() or b"{}")


def outputs(answer):
    return answer["outputs"][0]["data"]


@pytest.mark.row("IN7")
def test_a_foreign_client_reads_metadata_and_infers_json_and_binary(server, python):
    ran = subprocess.run(
        [python, "-c", TRITON, f"127.0.0.1:{server.port}"], capture_output=True, text=True, check=False, timeout=120
    )
    assert ran.stdout.split("\n")[:2] == ["[4.0, 4.0]"] * 2, ran.stderr


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (request(1, shape=[1, 5]), 400, "shape"),
        (request(1, datatype="INT64"), 400, "wanted FP32"),
        (request(1, name="y"), 400, "missing ['x']"),
        (b'{"inputs": [', 422, ""),
        (b"{}", 422, ""),
        (b"x" * 20001, 413, "20000 bytes"),
    ],
    ids=["shape", "dtype", "name", "half", "empty", "large"],
)
def test_a_bad_request_says_what_was_wanted(server, body, status, says):
    found, answer = ask(server.port, body)
    assert (found, says in json.dumps(answer)) == (status, True), answer
    assert outputs(ask(server.port, request(2))[1]) == [8.0]


def test_the_model_of_the_server_cannot_be_unloaded(server):
    assert ask(server.port, b"{}", "/v2/repository/models/line/unload")[0] == 404
    assert ask(server.port, request(1))[0] == 200


@pytest.mark.row("IN2")
def test_a_swap_under_load_loses_nothing_and_a_bad_version_is_not_served(python, tmp_path):
    port = free_port()
    with started(tmp_path, port, folder=write_model(tmp_path / "first")) as server:
        assert server.report(120)["version"] == 1
        swap_under_load(server, port, tmp_path)


def swap_under_load(server, port, tmp_path):
    stop, found = threading.Event(), []

    def load():
        while not stop.is_set():
            found.append(ask(port, request(1)))

    with ThreadPoolExecutor(4) as pool:
        for _ in range(4):
            pool.submit(load)
        wrong = write_model(tmp_path / "wrong", weight=3.0, answer=4.0)
        server.swap(ServedFolder(folder=wrong, code=code(), name="line", version=2))
        refused = server.report(120)
        right = write_model(tmp_path / "right", weight=3.0, answer=24.0)
        server.swap(ServedFolder(folder=right, code=code(2.0), name="line", version=3))
        swapped = server.report(120)
        last = ask(port, request(1))
        stop.set()
    assert refused["refused"] == 2
    assert "golden sample" in refused["error"]
    assert swapped["swapped"] == 3
    assert outputs(last[1]) == [24.0]
    assert {status for status, _ in found} == {200}
    assert {(answer["model_version"], outputs(answer)[0]) for _, answer in found} <= {("1", 4.0), ("3", 24.0)}
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
    assert 'gangline_infer_version{model="line"} 3.0' in text


@pytest.mark.row("IN2")
def test_overload_is_refused_and_a_drain_answers_what_was_accepted(python, tmp_path):
    port = free_port()
    folder = write_model(tmp_path / "model", batch=1, queue=2)
    with started(tmp_path, port, folder=folder) as server, ThreadPoolExecutor(40) as pool:
        assert server.report(120)["queue"] == 2
        body = request(*range(200))
        answers = list(pool.map(lambda _: ask(port, body)[0], range(400)))
        assert set(answers) <= {200, 429}
        assert answers.count(200) > 0
        assert answers.count(429) > 0
        late = [pool.submit(ask, port, body) for _ in range(3)]
        accepted = late[0].result()[0]
        assert server.drain() == 0
        assert accepted in (200, 429)


def test_a_token_is_wanted_and_is_in_no_argument(python, tmp_path):
    port = free_port()
    with started(tmp_path, port, token="a-secret-of-callers") as server:
        assert server.report(120)["version"] == 1
        assert ask(port, request(1))[0] == 401
        assert ask(port, request(1), headers={"Authorization": "Bearer a-secret-of-callers"})[0] == 200
        assert b"a-secret" not in Path(f"/proc/{server.pid}/cmdline").read_bytes()


def test_another_golden_answer_ends_the_start(python, tmp_path):
    with (
        started(tmp_path, free_port(), folder=write_model(tmp_path / "model", answer=5.0)) as server,
        pytest.raises(IntegrityError, match="golden sample is answered otherwise"),
    ):
        server.report(120)
