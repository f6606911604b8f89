"""What the cluster needs of this machine, asked before anything is touched; everything missing is told at once."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.cluster.rig import places
from tests.cluster.rig.trouble import Lacking

_PACKAGES = {
    "containerd": "containerd", "ctr": "containerd", "runc": "runc", "iptables": "iptables", "socat": "socat",
    "conntrack": "conntrack", "ip": "iproute2", "unshare": "util-linux", "nsenter": "util-linux",
    "mount": "mount", "debootstrap": "debootstrap",
}  # fmt: skip
_PLUGINS = Path("/usr/lib/cni")


def check() -> None:
    """Raises `Lacking` that names each missing thing and the line that installs it."""
    if sys.platform != "linux":
        raise Lacking(f"the test cluster needs Linux, this is {sys.platform}; GANGLINE_TEST_KUBECONFIG names another")
    if os.geteuid() != 0:
        raise Lacking("the test cluster makes namespaces and mounts, for which it must run as root")
    _check_packages()
    _check_namespaces()
    _check_home()


def _check_home() -> None:
    home = places.home().resolve()
    if any(home.is_relative_to(Path(folder).resolve()) for folder in places.COVERED):
        raise Lacking(
            f"{home} is covered inside the cluster; GANGLINE_TEST_CLUSTER names another, outside /run and /var"
        )
    longest = max((places.api_socket(), places.store_socket()), key=lambda path: len(str(path)))
    if len(str(longest).encode()) > places.LONGEST_SOCKET_PATH:
        raise Lacking(f"{longest} is too long for a socket; GANGLINE_TEST_CLUSTER names a shorter folder")


def _check_packages() -> None:
    wanted = {package for program, package in _PACKAGES.items() if shutil.which(program, path=_path()) is None}
    if not (_PLUGINS / "bridge").is_file():
        wanted.add("containernetworking-plugins")
    if wanted:
        raise Lacking(f"the test cluster needs more of this machine: apt-get install -y {' '.join(sorted(wanted))}")


def _check_namespaces() -> None:
    tried = subprocess.run(
        ["unshare", "--mount", "--pid", "--net", "--uts", "--ipc", "--fork", "true"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if tried.returncode:
        raise Lacking(
            f"no namespaces can be made here ({tried.stderr.strip()}); the cluster needs a machine, or a container "
            "with --privileged"
        )


def _path() -> str:
    """Debian keeps some of them where a plain user's PATH does not look."""
    return os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))
