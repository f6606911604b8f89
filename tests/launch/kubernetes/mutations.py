"""Changes of a good pod, each with the control that refuses it; harmless ones with none."""

import copy
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


def good_pod():
    template = render_as(*cases()["job-4-gpu-gates"]).root["spec"]["template"]
    pod = {"apiVersion": "v1", "kind": "Pod", **copy.deepcopy(template)}
    pod["metadata"]["name"] = "gang-0"
    pod["spec"].pop("priorityClassName", None)
    return pod


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


MUTATIONS = (
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
    _one("port to bind", None, f"{_SECURITY}.capabilities.add+", "NET_BIND_SERVICE"),
    _one("another variable", None, "C.env+", {"name": "EXTRA", "value": "1"}),
    _one("another volume", None, "spec.volumes+", {"name": "more", "emptyDir": {}}),
    _one("safe sysctl", None, f"{_OF_POD}.sysctls+", {"name": "net.ipv4.tcp_syncookies", "value": "1"}),
    _one("container type", None, f"{_OF_POD}.seLinuxOptions.type", "container_t"),
    _one("another user", None, f"{_SECURITY}.runAsUser", 1000),
    _one("local profile", None, f"{_SECURITY}.seccompProfile", {"type": "Localhost", "localhostProfile": "gang.json"}),
)
