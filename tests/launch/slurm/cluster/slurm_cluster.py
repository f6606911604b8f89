"""A real Slurm for tests, seen from outside: started, asked, and gone with everything in it.

`unshare` makes its namespaces; the first process in them ends when stdin does, and the kernel then ends all others, so
nothing stays behind however a test ends.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.launch.slurm.cluster.configuration import CPU_SERVERS, SERVERS

from gangline import procfs

ROOT = Path(__file__).parents[4]
_PROGRAMS = {
    "slurmctld": "slurm-wlm", "slurmd": "slurm-wlm", "sbatch": "slurm-wlm", "munged": "munge", "ip": "iproute2",
    "unshare": "util-linux",
}  # fmt: skip
_NAMESPACES = ("unshare", "--net", "--mount", "--uts", "--ipc", "--pid", "--fork", "--mount-proc", "--kill-child")
PATH = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY", "DEADLINE")


def skip_unless_possible() -> None:
    """Skip with what is missing."""
    missing = {package for program, package in _PROGRAMS.items() if shutil.which(program, path=PATH) is None}
    if missing:
        pytest.skip(f"no Slurm here: apt-get install --no-install-recommends {' '.join(sorted(missing))}")
    if os.geteuid() != 0 or subprocess.run([*_NAMESPACES, "true"], capture_output=True, check=False).returncode:
        pytest.skip("a Slurm of the tests needs root, and namespaces of its own")


def open_slurm(folder: Callable[[str], Path]) -> "Iterator[SlurmCluster]":
    """A running Slurm in a folder of this name, until the generator is closed; or a skip that says what is missing."""
    skip_unless_possible()
    cluster = SlurmCluster(folder("slurm"))
    yield cluster
    cluster.close()


class SlurmCluster:
    """The cluster of `configuration`, all servers idle; `folder` is what they share."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        inside = (sys.executable, "-m", "tests.launch.slurm.cluster.inside", str(folder))
        reaping = ("bash", "-c", '"$@"; exit $?', "init")  # the first process takes what others leave
        environ = {"PATH": PATH, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
        self._process = subprocess.Popen(
            [*_NAMESPACES, *reaping, *inside], cwd=ROOT, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        idle = f"idle {len((*SERVERS, *CPU_SERVERS))}\n"
        self.until(lambda: self.run("sinfo", "--noheader", "--partition=urgent", "-o", "%T %D").stdout == idle)

    @property
    def via(self) -> tuple[str, ...]:
        """Words before a command that runs beside the controller, as `[slurm] via` has them: any number at a time."""
        inside = str(procfs.children(self._process.pid)[0])
        entered = ("--net", "--mount", "--uts", "--ipc", "--pid")
        environ = (f"PATH={PATH}", f"HOME={self.folder}", f"SLURM_CONF={self.folder}/slurm.conf")
        return ("nsenter", f"--target={inside}", *entered, "env", "-i", *environ)

    def run(self, *words: str, cwd: Path | None = None, **env: str):
        """A command beside the controller, in the folder `cwd`."""
        asked = {"words": words, "cwd": str(cwd or self.folder), "env": env}
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return subprocess.CompletedProcess(words, **json.loads(self._process.stdout.readline()))

    def submit(self, script: Path, *options: str, **env: str) -> str:
        """Number of the job."""
        done = self.run("sbatch", "--parsable", *options, str(script), cwd=script.parent, **env)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def job(self, number: str) -> dict[str, str]:
        """What `scontrol show job` tells."""
        words = self.run("scontrol", "--oneliner", "show", "job", number).stdout.split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def wait(self, number: str, *states: str, seconds: float = 60.0) -> dict[str, str]:
        """The job, once it is in one of `states`: by default at its end."""
        self.until(lambda: self.job(number)["JobState"] in (states or ENDED), seconds=seconds)
        return self.job(number)

    def kill(self, program: str) -> None:
        """SIGKILL to every process of this name, and wait until it is gone."""
        self.run("pkill", "-KILL", "-x", program)
        self.until(lambda: self.run("pgrep", "-x", program).returncode == 1)

    def start_controller(self) -> None:
        """Start slurmctld again, after it was killed."""
        log = f"{self.folder}/logs/slurmctld"
        self.run("setsid", "--fork", "slurmctld", "-f", f"{self.folder}/slurm.conf", "-L", log)

    def processes(self, *words: str) -> list[str]:
        """Command lines on any server that have one of these words."""
        lines = self.run("ps", "-e", "-o", "args=").stdout.splitlines()
        return [line for line in lines if any(word in line for word in words)]

    def until(self, is_so: Callable[[], bool], *, seconds: float = 30.0) -> None:
        """Wait for it, and say where logs are if it does not come."""
        deadline = time.monotonic() + seconds
        while not is_so():
            assert time.monotonic() < deadline, f"not within {seconds:g} s; logs of the daemons: {self.folder}/logs"
            time.sleep(0.1)

    def close(self) -> None:
        """End it, and every process in it."""
        with self._process as process:
            process.stdin.close()
            process.wait(20)
