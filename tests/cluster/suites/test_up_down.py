"""A second cluster, brought up and taken down beside the first: killed at any moment, and nothing of it stays."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.cluster.rig import machine, places, sysctls
from tests.cluster.rig.trouble import Lacking
from tests.cluster.servers.build import missing
from tests.ports import free_port

ROOT = Path(__file__).parents[3]
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


@pytest.fixture(scope="module", autouse=True)
def able():
    try:
        machine.check()
    except Lacking as lacking:
        pytest.skip(str(lacking))
    if wanted := [name for _, name in missing()]:
        pytest.skip(f"make cluster-up builds {', '.join(wanted)}")


class Second:
    """A cluster with a home and ports of its own; servers and layers are shared, as they are slow to make."""

    def __init__(self, home: Path) -> None:
        self.home = home
        home.mkdir()
        for shared in ("servers", "images"):
            (home / shared).symlink_to(places.home() / shared)
        self.ports = [free_port() for _ in range(2)]
        reported = {"CLUSTER": str(home), "API_PORT": str(self.ports[0]), "STORE_PORT": str(self.ports[1])}
        self.environ = {**os.environ, **{f"GANGLINE_TEST_{name}": value for name, value in reported.items()}}

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.cluster.rig", *arguments]
        return subprocess.Popen(
            command, cwd=ROOT, env=self.environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
        )  # fmt: skip

    def call(self, *arguments: str) -> tuple[int, str, float]:
        """Code, output, seconds."""
        began = time.monotonic()
        with self.start(*arguments) as process:
            said = process.communicate(timeout=240)[0]
        return process.returncode, said, time.monotonic() - began

    def traces(self) -> list[str]:
        """What it has on this machine outside its home."""
        mounts = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(self.home) in line]
        groups = [str(path) for path in Path("/sys/fs/cgroup").glob(f"**/gangline-cluster-{self.ports[0]}")]
        open_ports = [f"port {port}" for port in self.ports if is_open(port)]
        return mounts + groups + open_ports + self.processes()

    def processes(self) -> list[str]:
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                words = (path / "cmdline").read_bytes() + (path / "environ").read_bytes()
            except OSError:  # it ended meanwhile, or is the kernel's
                continue
            if str(self.home).encode() in words:
                found.append(f"process {path.name} {words[:80]!r}")
        return found


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Keeps its images between tests."""
    made = Second(tmp_path_factory.mktemp("second") / "home")
    yield made
    made.call("down", "--purge")


@pytest.fixture
def second(home):
    """Down, before and after."""
    yield home
    assert home.call("down")[0] == 0


def test_cluster_comes_up_again_and_goes_without_a_trace(second):
    before, interfaces = sysctls.read(), sorted(Path("/sys/class/net").iterdir())
    code, said, _ = second.call("up")
    assert code == 0, said
    assert second.call("status")[0] == 0
    code, said, seconds = second.call("up")
    assert (code, seconds < 10) == (0, True), said
    code, said, _ = second.call("down")
    assert code == 0, said
    assert second.traces() == []
    assert sysctls.read() == before
    assert sorted(Path("/sys/class/net").iterdir()) == interfaces
    assert second.call("status")[0] == 3


def test_host_alone_listens_and_for_its_owner_alone(second):
    code, said, _ = second.call("up")
    assert code == 0, said
    for name in ("api.sock", "store.sock"):
        assert (second.home / "state" / name).stat().st_mode & 0o777 == 0o600
    listening = Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()
    for port in second.ports:
        addresses = {line.split()[1] for line in listening.splitlines() if f":{port:04X} " in line and " 0A " in line}
        assert addresses == {f"0100007F:{port:04X}"}


@pytest.mark.parametrize(
    "seconds", [0.6, 2.5, pytest.param(1.2, marks=pytest.mark.slow), pytest.param(5.0, marks=pytest.mark.slow)]
)
def test_up_that_was_killed_is_followed_by_one_that_works(second, seconds):
    with second.start("up") as process:
        time.sleep(seconds)
        os.killpg(process.pid, signal.SIGKILL)
    code, said, _ = second.call("up")
    assert code == 0, said
    code, said, _ = second.call("down")
    assert code == 0, said
    assert second.traces() == []


def test_cluster_whose_host_process_was_killed_is_gone_and_comes_again(second):
    code, said, _ = second.call("up")
    assert code == 0, said
    hosts = [int(line.split()[1]) for line in second.processes() if "rig.host" in line]
    for pid in hosts:
        os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 30
    while second.processes():
        assert time.monotonic() < deadline, second.processes()
        time.sleep(0.1)
    code, said, _ = second.call("up")
    assert code == 0, said
