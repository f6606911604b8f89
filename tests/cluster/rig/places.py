"""Where the test cluster keeps its things, and the addresses it uses. Knows names only; nothing is made here."""

import os
from pathlib import Path

NODE = "gangline-0"
NODE_ADDRESS = "10.200.0.1"
POD_CIDR = "10.244.0.0/24"
CLUSTER_CIDR = "10.244.0.0/16"
SERVICE_CIDR = "10.96.0.0/16"
API_SERVICE_ADDRESS = "10.96.0.1"
DNS_ADDRESS = "10.96.0.10"
STORE_ADDRESS = "10.96.0.90"
"""Of the Service `minio.gangline-store`."""
STORE_PORT = 9000
CONTAINERD_SOCKET = "/run/gangline-containerd.sock"
"""Inside, where /run is the cluster's own."""
COVERED = ("/run", "/var/log", "/var/lib")
"""Folders of the host that the cluster does not see, but empty ones of its own instead."""
LONGEST_SOCKET_PATH = 107
"""What the kernel takes."""


def home() -> Path:
    """Folder of everything that outlives a cluster; `GANGLINE_TEST_CLUSTER` names another."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("GANGLINE_TEST_CLUSTER") or cache / "gangline" / "cluster").absolute()


def api_port() -> int:
    """On the host's 127.0.0.1."""
    return int(os.environ.get("GANGLINE_TEST_API_PORT") or 26443)


def store_port() -> int:
    """On the host's 127.0.0.1."""
    return int(os.environ.get("GANGLINE_TEST_STORE_PORT") or 29000)


def cgroup() -> str:
    """Name of the cluster's control groups; clusters that run side by side differ in their ports."""
    return f"gangline-cluster-{api_port()}"


def state() -> Path:
    return home() / "state"


def configuration() -> Path:
    return state() / "etc"


def keys() -> Path:
    return state() / "pki"


def logs() -> Path:
    return state() / "log"


def kubeconfig(user: str = "admin") -> Path:
    return keys() / f"{user}.kubeconfig"


def api_socket() -> Path:
    return state() / "api.sock"


def store_socket() -> Path:
    return state() / "store.sock"
