"""Commands run inside the cluster's namespaces, from the host."""

import subprocess

from tests.cluster.rig import host, places, process
from tests.cluster.rig.trouble import Trouble


def enter(*command: str) -> list[str]:
    """`command` as it is to be started; raises `Trouble` where no cluster runs."""
    pid = process.read(host.init_file())
    if pid is None:
        raise Trouble("no test cluster runs here; make cluster-up starts it")
    return ["nsenter", f"--target={pid}", "--mount", "--pid", "--net", "--uts", "--ipc", *command]


def ctr(*arguments: str) -> list[str]:
    """containerd's own client, for the images that the kubelet uses."""
    return enter("ctr", "--address", places.CONTAINERD_SOCKET, "--namespace", "k8s.io", *arguments)


def output(command: list[str], **options: object) -> str:
    """What `command` prints; raises `Trouble` with its last words."""
    ended = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if ended.returncode:
        raise Trouble(f"{' '.join(command[:12])} ended with {ended.returncode}: {ended.stderr.strip()[-1000:]}")
    return ended.stdout
