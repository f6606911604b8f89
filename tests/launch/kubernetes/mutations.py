"""Changes of a good pod, each with the control that refuses it; harmless ones with none."""

import copy
import uuid
from dataclasses import dataclass, field

from hypothesis import strategies as st
from tests.launch.kubernetes.gangs import cases

from gangline.launch.kubernetes.objects.render import render_as


@dataclass(frozen=True)
class Mutation:
    name: str
    control: str | None
    changes: dict = field(hash=False)
    """Path to value, None takes it away; `C` at the start is a container, `+` at the end appends to a list."""

    def apply(self, pod, container):
        for path, value in self.changes.items():
            start, *steps = path.split(".")
            _set(container if start == "C" else pod[start], steps, copy.deepcopy(value))

    def touches(self, other):
        """They change the same: what a container says of itself stands before what its pod says of it."""
        ours, theirs = ([path.partition(".")[2] for path in each.changes] for each in (self, other))
        return any(a.startswith(b) or b.startswith(a) for a in ours for b in theirs)


def good_job():
    """As a launcher creates it, less what a cluster may lack."""
    job = copy.deepcopy(render_as(*cases()["job-4-gpu-gates"]).root)
    job["spec"]["template"]["spec"].pop("priorityClassName", None)
    return job


def good_pod():
    """Of that Job, as its controller makes it."""
    job = good_job()
    pod = {"apiVersion": "v1", "kind": "Pod", **job["spec"]["template"]}
    pod["metadata"] |= {"name": "gang-0", "ownerReferences": [owner(job["metadata"]["name"])]}
    return pod


def owner(job):
    """Reference of a pod to the Job that made it."""
    return {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": str(uuid.UUID(int=7)), "controller": True}


@st.composite
def mutated(draw, *, num=3):
    """A pod, and the mutations it went through, on its container or on one that runs before it; none undoes another."""
    pod = good_pod()
    if draw(st.booleans()):
        init = copy.deepcopy(pod["spec"]["containers"][0]) | {"name": "init"}
        del init["readinessProbe"]
        pod["spec"]["initContainers"] = [init]
    drawn = draw(st.lists(st.sampled_from(MUTATIONS), min_size=1, max_size=num, unique_by=lambda each: each.name))
    standing = [each for number, each in enumerate(drawn) if not any(map(each.touches, drawn[:number]))]
    for mutation in standing:
        kinds = [
            pod["spec"]["containers"],
            *([pod["spec"]["initContainers"]] if "initContainers" in pod["spec"] else []),
        ]
        mutation.apply(pod, draw(st.sampled_from(kinds))[0])
    return pod, tuple(standing)


def _set(value, steps, new):
    *walked, last = steps
    for step in walked:
        value = value.setdefault(step, {})
    if last.endswith("+"):
        value.setdefault(last[:-1], []).append(new)
    elif new is None:
        value.pop(last, None)
    else:
        value[last] = new


_SECURITY, _OF_POD = "C.securityContext", "spec.securityContext"


def _one(name, control, path, value):
    return Mutation(name, control, {path: value})


def ways_to(secret):
    """Every way in which a pod may name this Secret."""
    reference = {"name": secret}
    return (
        _one(f"volume of {secret}", "secret", "spec.volumes+", {"name": "bad", "secret": {"secretName": secret}}),
        _one(
            f"projection of {secret}", "secret", "spec.volumes+",
            {"name": "bad", "projected": {"sources": [{"secret": reference}]}},
        ),
        _one(
            f"projection of {secret} beside a map", "secret", "spec.volumes+",
            {"name": "bad", "projected": {"sources": [{"configMap": {"name": "m"}}, {"secret": reference}]}},
        ),
        _one(
            f"variable of {secret}", "secret", "C.env+",
            {"name": "BAD", "valueFrom": {"secretKeyRef": reference | {"key": "key"}}},
        ),
        _one(f"variables of {secret}", "secret", "C.envFrom+", {"secretRef": reference}),
        _one(f"pull by {secret}", "secret", "spec.imagePullSecrets+", reference),
        _one(
            f"secret store by {secret}", "volumes", "spec.volumes+",
            {"name": "bad", "csi": {"driver": "secrets-store.csi.k8s.io", "nodePublishSecretRef": reference}},
        ),
        *(
            _one(f"{kind} by {secret}", "volumes", "spec.volumes+", {"name": "bad", kind: volume})
            for kind, volume in _of_old_drivers(secret).items()
        ),
    )  # fmt: skip


def _of_old_drivers(secret):
    """Volumes that bring a Secret along to whoever mounts them."""
    reference = {"name": secret}
    return {
        "azureFile": {"secretName": secret, "shareName": "s"},
        "cephfs": {"monitors": ["10.0.0.1"], "secretRef": reference},
        "cinder": {"volumeID": "v", "secretRef": reference},
        "flexVolume": {"driver": "a/b", "secretRef": reference},
        "iscsi": {"targetPortal": "10.0.0.1", "iqn": "iqn.2001-04.com.example:s", "lun": 0, "secretRef": reference},
        "rbd": {"monitors": ["10.0.0.1"], "image": "i", "secretRef": reference},
        "scaleIO": {"gateway": "g", "system": "s", "volumeName": "v", "secretRef": reference},
        "storageos": {"volumeName": "v", "secretRef": reference},
    }


MUTATIONS = (
    *ways_to("gangline-store"),
    *ways_to("other.gang"),
    _one("pod of no job", "secret", "metadata.ownerReferences", None),
    _one("pod of another job", "secret", "metadata.ownerReferences", [owner("other")]),
    _one(
        "pod of another kind of job",
        "secret",
        "metadata.ownerReferences",
        [owner(good_job()["metadata"]["name"]) | {"apiVersion": "batch.example.com/v1"}],
    ),
    _one(
        "pod of no controller",
        "secret",
        "metadata.ownerReferences",
        [owner(good_job()["metadata"]["name"]) | {"controller": False}],
    ),
    _one(
        "variable of its own secret",
        "secret",
        "C.envFrom+",
        {"secretRef": {"name": f"{good_job()['metadata']['name']}.gang"}},
    ),
    _one("host network", "host namespaces", "spec.hostNetwork", True),
    _one("host processes", "host namespaces", "spec.hostPID", True),
    _one("host ipc", "host namespaces", "spec.hostIPC", True),
    Mutation(
        "privileged", "privileged", {f"{_SECURITY}.privileged": True, f"{_SECURITY}.allowPrivilegeEscalation": True}
    ),
    *(
        _one(f"capability {each}", "capabilities", f"{_SECURITY}.capabilities.add+", each)
        for each in ("SYS_ADMIN", "NET_ADMIN", "IPC_LOCK", "CHOWN", "ALL")
    ),
    _one("keeps capabilities", "capabilities", f"{_SECURITY}.capabilities.drop", ["NET_RAW"]),
    _one("capabilities unsaid", "capabilities", f"{_SECURITY}.capabilities", None),
    _one("host path", "volumes", "spec.volumes+", {"name": "bad", "hostPath": {"path": "/"}}),
    _one("nfs", "volumes", "spec.volumes+", {"name": "net", "nfs": {"server": "10.0.0.1", "path": "/"}}),
    _one("host port", "host ports", "C.ports+", {"name": "bad", "containerPort": 22, "hostPort": 22}),
    _one("root", "user", f"{_SECURITY}.runAsUser", 0),
    _one("root pod", "user", f"{_OF_POD}.runAsUser", 0),
    _one("may be root", "user", f"{_SECURITY}.runAsNonRoot", False),
    _one("user unsaid", "user", f"{_OF_POD}.runAsNonRoot", None),
    _one("unconfined", "seccomp", f"{_SECURITY}.seccompProfile.type", "Unconfined"),
    _one("unconfined pod", "seccomp", f"{_OF_POD}.seccompProfile.type", "Unconfined"),
    _one("seccomp unsaid", "seccomp", f"{_OF_POD}.seccompProfile", None),
    _one("escalates", "privilege escalation", f"{_SECURITY}.allowPrivilegeEscalation", True),
    _one("escalation unsaid", "privilege escalation", f"{_SECURITY}.allowPrivilegeEscalation", None),
    Mutation("raw /proc", "/proc", {f"{_SECURITY}.procMount": "Unmasked", "spec.hostUsers": False}),
    _one("sysctl", "sysctls", f"{_OF_POD}.sysctls+", {"name": "kernel.msgmax", "value": "65536"}),
    _one("selinux type", "SELinux", f"{_SECURITY}.seLinuxOptions.type", "spc_t"),
    _one("selinux user", "SELinux", f"{_OF_POD}.seLinuxOptions.user", "system_u"),
    _one("selinux role", "SELinux", f"{_OF_POD}.seLinuxOptions.role", "system_r"),
    _one("apparmor", "AppArmor", f"{_SECURITY}.appArmorProfile.type", "Unconfined"),
    _one("apparmor pod", "AppArmor", f"{_OF_POD}.appArmorProfile.type", "Unconfined"),
    _one(
        "hook elsewhere",
        "host of probes",
        "C.lifecycle.preStop",
        {"tcpSocket": {"host": "169.254.169.254", "port": 80}},
    ),
    _one("image by tag", "image", "C.image", "registry.example/gangline/bytegpt:latest"),
    _one("no run", "run", "metadata.labels", {"gangline/gang": "x"}),
    _one("foreign account", "account", "spec.serviceAccountName", "default"),
    _one("token", "token", "spec.automountServiceAccountToken", True),
    _one(
        "projected token",
        "token",
        "spec.volumes+",
        {"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}},
    ),
    _one("pull by a name for it", None, "spec.imagePullSecrets+", {"name": "gangline-pull-eu"}),
    _one("name for pulls", None, "spec.imagePullSecrets+", {"name": "gangline-pull"}),
    _one("name that begins like one for pulls", "secret", "spec.imagePullSecrets+", {"name": "gangline-pulls"}),
    _one(
        "its own secret again",
        None,
        "spec.volumes+",
        {"name": "again", "projected": {"sources": [{"secret": {"name": f"{good_job()['metadata']['name']}.gang"}}]}},
    ),
    _one("a map", None, "spec.volumes+", {"name": "map", "configMap": {"name": "kube-root-ca.crt"}}),
    _one("a claim", None, "spec.volumes+", {"name": "claim", "persistentVolumeClaim": {"claimName": "data"}}),
    _one("port to bind", None, f"{_SECURITY}.capabilities.add+", "NET_BIND_SERVICE"),
    _one("another variable", None, "C.env+", {"name": "EXTRA", "value": "1"}),
    _one("another volume", None, "spec.volumes+", {"name": "more", "emptyDir": {}}),
    _one("safe sysctl", None, f"{_OF_POD}.sysctls+", {"name": "net.ipv4.tcp_syncookies", "value": "1"}),
    _one("container type", None, f"{_OF_POD}.seLinuxOptions.type", "container_t"),
    _one("another user", None, f"{_SECURITY}.runAsUser", 1000),
    _one("local profile", None, f"{_SECURITY}.seccompProfile", {"type": "Localhost", "localhostProfile": "gang.json"}),
)
