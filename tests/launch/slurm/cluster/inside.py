"""A Slurm in namespaces that end with this process: `python -m tests.launch.slurm.cluster.inside FOLDER`.

Each server has a network, a host name and a slurmd; munged and slurmctld share a namespace, which has a bridge to all.
Then it does what stdin asks, a JSON line each: the words of a command, answered by what came of them.
"""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

from tests.launch.slurm.cluster.configuration import ADDRESSES, CONTROLLER, CPU_SERVERS, SERVERS, write_configuration


def main(folder: Path) -> None:
    write_configuration(folder)
    _lay_out_network(folder)
    log = (folder / "logs" / "daemons").open("w")
    for words in _daemons(folder):
        subprocess.Popen(words, env=_environ(folder), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    for server in (*SERVERS, *CPU_SERVERS):
        start_slurmd(folder, server)
    for line in sys.stdin:
        print(json.dumps(_answer(folder, **json.loads(line))), flush=True)


def start_slurmd(folder: Path, server: str) -> None:
    """On `server`, whose host name it gets."""
    script = 'hostname "$0"; exec "$@"'
    words = ("slurmd", "-D", "-f", f"{folder}/slurm.conf", "-L", f"{folder}/logs/{server}")
    named = ("ip", "netns", "exec", server, "unshare", "--uts", "sh", "-c", script, server, *words)
    quiet = subprocess.DEVNULL
    subprocess.Popen(named, env=_environ(folder), stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)


def _daemons(folder: Path) -> tuple[tuple[str, ...], ...]:
    munge = (f"--{name}={folder}/munge.{name}" for name in ("socket", "pid-file", "log-file", "seed-file"))
    return (
        ("munged", "--foreground", "--force", f"--key-file={folder}/munge.key", *munge),
        ("slurmctld", "-D", "-f", f"{folder}/slurm.conf", "-L", f"{folder}/logs/slurmctld"),
    )


def _lay_out_network(folder: Path) -> None:
    socket.sethostname(CONTROLLER)
    Path("/run/netns").mkdir(exist_ok=True)
    _call("mount", "-t", "tmpfs", "none", "/run/netns")
    _call("mount", "--bind", f"{folder}/hosts", "/etc/hosts")
    _call("ip", "link", "set", "lo", "up")
    _call("ip", "link", "add", "bridge", "type", "bridge")
    _call("ip", "address", "add", f"{ADDRESSES[CONTROLLER]}/24", "dev", "bridge")
    _call("ip", "link", "set", "bridge", "up")
    for server in (*SERVERS, *CPU_SERVERS):
        _call("ip", "netns", "add", server)
        _call("ip", "link", "add", f"to-{server}", "type", "veth", "peer", "name", "eth0", "netns", server)
        _call("ip", "link", "set", f"to-{server}", "master", "bridge", "up")
        _call("ip", "-n", server, "address", "add", f"{ADDRESSES[server]}/24", "dev", "eth0")
        for end in ("lo", "eth0"):
            _call("ip", "-n", server, "link", "set", end, "up")


def _answer(folder: Path, words: list[str], cwd: str, env: dict[str, str]) -> dict[str, object]:
    done = subprocess.run(
        words, cwd=cwd, env={**_environ(folder), **env}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    return {"returncode": done.returncode, "stdout": done.stdout, "stderr": done.stderr}


def _environ(folder: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(folder), "SLURM_CONF": f"{folder}/slurm.conf"}


def _call(*command: str) -> None:
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
