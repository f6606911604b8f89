"""Configuration files of the daemons, written anew at every start from `places`; JSON where a daemon takes YAML."""

import json
from pathlib import Path
from typing import Any

from tests.cluster.rig import places


def write_config(folder: Path) -> None:
    """All files into `folder`; those that stand beside it (`places`) are named in them."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cni").mkdir(exist_ok=True)
    (folder / "containerd.toml").write_text(_containerd())
    (folder / "Corefile").write_text(_coredns())
    (folder / "resolv.conf").write_text("")  # what pods would inherit: nothing
    (folder / "resolv.inside").write_text(f"nameserver {places.DNS_ADDRESS}\n")
    for name, value in {
        "cni/10-bridge.conflist": _network(),
        "kubelet.json": _kubelet(),
        "proxy.json": _proxy(),
    }.items():
        (folder / name).write_text(json.dumps(value, indent=1))


def base_objects() -> list[dict[str, Any]]:
    """What a cluster needs before its first pod: rights of kube-proxy, and DNS, which runs on the node."""
    dns = {"name": "kube-dns", "namespace": "kube-system"}
    ports = [{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53, "protocol": "TCP"}]
    return [
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "gangline-test-node-proxier"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "system:node-proxier",
            },
            "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "system:kube-proxy"}],
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": dns,
            "spec": {"clusterIP": places.DNS_ADDRESS, "ports": ports},
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {**dns, "labels": {"kubernetes.io/service-name": "kube-dns"}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [places.NODE_ADDRESS]}],
            "ports": ports,
        },
    ]


def _containerd() -> str:
    """Its own root, state and socket: another containerd of this machine is not touched."""
    state = places.state()
    return f"""\
version = 2
root = "{state}/containerd"
state = "/run/gangline-containerd"
[grpc]
  address = "{places.CONTAINERD_SOCKET}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{state}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "gangline.test/pause:1"
  max_container_log_line_size = 65536
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{places.configuration()}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
"""


def _coredns() -> str:
    return f""".:53 {{
    bind {places.NODE_ADDRESS}
    errors
    health 127.0.0.1:18080
    ready 127.0.0.1:18181
    kubernetes cluster.local in-addr.arpa {{
        kubeconfig {places.kubeconfig("dns")}
        pods insecure
        ttl 5
    }}
}}
"""


def _network() -> dict[str, Any]:
    """A bridge; no masquerade and no way out. What it remembers lies in the cluster's /run and ends with it."""
    addresses = {
        "type": "host-local",
        "ranges": [[{"subnet": places.POD_CIDR}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": "/run/gangline-cni",
    }
    bridge = {
        "type": "bridge", "bridge": "cni0", "isGateway": True, "hairpinMode": True, "ipMasq": False, "mtu": 1400,
        "ipam": addresses,
    }  # fmt: skip
    ports = {"type": "portmap", "capabilities": {"portMappings": True}, "snat": True}
    return {"cniVersion": "1.0.0", "name": "gangline-test", "plugins": [bridge, ports]}


def _kubelet() -> dict[str, Any]:
    keys, state = places.keys(), places.state()
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{keys}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{keys}/kubelet-serving.crt",
        "tlsPrivateKeyFile": f"{keys}/kubelet-serving.key",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{places.cgroup()}",
        "failSwapOn": False,
        "failCgroupV1": False,
        "containerRuntimeEndpoint": f"unix://{places.CONTAINERD_SOCKET}",
        "clusterDomain": "cluster.local",
        "clusterDNS": [places.DNS_ADDRESS],
        "resolvConf": f"{places.configuration()}/resolv.conf",
        "podLogsDir": f"{state}/pod-logs",
        "volumePluginDir": f"{state}/kubelet/volume-plugins",
        "healthzBindAddress": "127.0.0.1",
        "nodeStatusUpdateFrequency": "4s",
        "syncFrequency": "10s",
        "maxPods": 60,
        "imageGCHighThresholdPercent": 100,  # images are imported, nobody could pull them again
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "1Gi",
            "imagefs.available": "1Gi",
            "nodefs.inodesFree": "1%",
        },
        "shutdownGracePeriod": "0s",
    }


def _proxy() -> dict[str, Any]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "bindAddress": "0.0.0.0",
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        "clientConnection": {"kubeconfig": str(places.kubeconfig("proxy"))},
        "hostnameOverride": places.NODE,
        "clusterCIDR": places.CLUSTER_CIDR,
        "mode": "iptables",
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }
