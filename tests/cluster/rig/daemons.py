"""Command lines of everything that runs inside the cluster's namespaces."""

from tests.cluster.rig import places, store
from tests.cluster.servers.build import program

_ASKING = ("--bind-address=127.0.0.1", "--leader-elect=false", "--kube-api-qps=400", "--kube-api-burst=800")


def first() -> dict[str, list[str]]:
    """What the others need."""
    return {"etcd": _etcd(), "containerd": _containerd(), "apiserver": _apiserver(), "store": _store(), **_relays()}


def second() -> dict[str, list[str]]:
    """What talks to the API server; started once it answers."""
    return {
        "controllers": _controllers(),
        "scheduler": _scheduler(),
        "kubelet": _kubelet(),
        "proxy": [str(program("kube-proxy")), f"--config={places.configuration()}/proxy.json"],
        "coredns": [str(program("coredns")), "-conf", f"{places.configuration()}/Corefile"],
    }


def outside() -> dict[str, list[str]]:
    """The host's half of the relays: 127.0.0.1 alone, to sockets that only their owner may open."""
    return {
        "host-relay-api": _listen(places.api_port(), str(places.api_socket())),
        "host-relay-store": _listen(places.store_port(), str(places.store_socket())),
    }


def _relays() -> dict[str, list[str]]:
    """The inner half."""
    return {
        "relay-api": _relay(str(places.api_socket()), f"127.0.0.1:{places.api_port()}"),
        "relay-store": _relay(str(places.store_socket()), f"{places.NODE_ADDRESS}:{places.STORE_PORT}"),
    }


def _store() -> list[str]:
    address = f"{places.NODE_ADDRESS}:{places.STORE_PORT}"
    return [
        "env", f"MINIO_CONFIG_ENV_FILE={store.environment_file()}", str(store.server()),
        "server", "--quiet", f"--address={address}", f"{places.state()}/store",
    ]  # fmt: skip


def _relay(socket: str, address: str) -> list[str]:
    return ["socat", f"UNIX-LISTEN:{socket},fork,unlink-early,mode=600", f"TCP:{address}"]


def _listen(port: int, socket: str) -> list[str]:
    return ["socat", f"TCP-LISTEN:{port},bind=127.0.0.1,reuseaddr,fork", f"UNIX-CONNECT:{socket}"]


def _etcd() -> list[str]:
    client, peer = "http://127.0.0.1:2379", "http://127.0.0.1:2380"
    return [
        str(program("etcd")), "--name=gangline", f"--data-dir={places.state()}/etcd",
        f"--listen-client-urls={client}", f"--advertise-client-urls={client}", f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=gangline={peer}",
        "--unsafe-no-fsync", "--log-level=warn",
    ]  # fmt: skip


def _containerd() -> list[str]:
    return ["containerd", "--config", f"{places.configuration()}/containerd.toml"]


def _apiserver() -> list[str]:
    keys = places.keys()
    return [
        str(program("kube-apiserver")),
        "--etcd-servers=http://127.0.0.1:2379",
        f"--advertise-address={places.NODE_ADDRESS}",
        f"--secure-port={places.api_port()}",
        f"--service-cluster-ip-range={places.SERVICE_CIDR}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        "--profiling=false",
        f"--client-ca-file={keys}/ca.crt",
        f"--tls-cert-file={keys}/apiserver.crt",
        f"--tls-private-key-file={keys}/apiserver.key",
        f"--kubelet-client-certificate={keys}/apiserver-kubelet.crt",
        f"--kubelet-client-key={keys}/apiserver-kubelet.key",
        f"--kubelet-certificate-authority={keys}/ca.crt",
        "--kubelet-preferred-address-types=InternalIP",
        f"--service-account-key-file={keys}/service-accounts.pub",
        f"--service-account-signing-key-file={keys}/service-accounts.key",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--requestheader-client-ca-file={keys}/front-proxy-ca.crt",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-username-headers=X-Remote-User",
        f"--proxy-client-cert-file={keys}/front-proxy.crt",
        f"--proxy-client-key-file={keys}/front-proxy.key",
        "--enable-aggregator-routing=true",
    ]


def _controllers() -> list[str]:
    keys = places.keys()
    return [
        str(program("kube-controller-manager")),
        *_as_user("controllers"),
        "--allocate-node-cidrs=true",
        f"--cluster-cidr={places.CLUSTER_CIDR}",
        f"--service-cluster-ip-range={places.SERVICE_CIDR}",
        f"--root-ca-file={keys}/ca.crt",
        f"--service-account-private-key-file={keys}/service-accounts.key",
        f"--cluster-signing-cert-file={keys}/ca.crt",
        f"--cluster-signing-key-file={keys}/ca.key",
        "--use-service-account-credentials=true",
    ]


def _scheduler() -> list[str]:
    return [str(program("kube-scheduler")), *_as_user("scheduler")]


def _as_user(user: str) -> list[str]:
    """Their default of 20 to 50 requests a second would make a start 5 s longer, and be what benchmarks measure."""
    path = places.kubeconfig(user)
    flags = ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
    return [*(f"--{flag}={path}" for flag in flags), *_ASKING]


def _kubelet() -> list[str]:
    return [
        str(program("kubelet")),
        f"--config={places.configuration()}/kubelet.json",
        f"--kubeconfig={places.kubeconfig('kubelet')}",
        f"--hostname-override={places.NODE}",
        f"--node-ip={places.NODE_ADDRESS}",
        f"--root-dir={places.state()}/kubelet",
    ]
