"""Is a pod allowed? PodSecurity's level `restricted` and our admission policy, as tables, without a cluster.

The tables follow the newest edition of the standard and take none of its relaxations (Windows, user namespaces): what a
server refuses is refused here, and somewhat more.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from gangline.launch.kubernetes.client.api import Object
from gangline.launch.kubernetes.objects.labels import RUN

ACCOUNT = "gangline-gang"
STORE_AUDIENCE = "gangline-store"
"""The only one that a pod's token may be for; a token without audience is one of the API."""
_CONTAINERS = ("spec.containers.*", "spec.initContainers.*", "spec.ephemeralContainers.*")
_BY_DIGEST = re.compile(r"[^@\s]+@sha256:[0-9a-f]{64}")
_VOLUMES = frozenset(
    {"configMap", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
)
"""PodSecurity takes csi and image, too, which may bring a Secret along."""
_PULLS = re.compile(r"gangline-pull(-.*)?")
_KITS = re.compile(r"gangline-kit(-.*)?")
_SELINUX = frozenset({"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"})
_PROFILES = frozenset({"RuntimeDefault", "Localhost"})
_SYSCTLS = frozenset(
    {
        "kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.ip_local_reserved_ports",
        "net.ipv4.ip_unprivileged_port_start", "net.ipv4.ping_group_range", "net.ipv4.tcp_fin_timeout",
        "net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes", "net.ipv4.tcp_keepalive_time",
        "net.ipv4.tcp_rmem", "net.ipv4.tcp_syncookies", "net.ipv4.tcp_wmem",
    }
)  # fmt: skip
_APPARMOR = "container.apparmor.security.beta.kubernetes.io/"


@dataclass(frozen=True, kw_only=True, slots=True)
class Violation:
    control: str
    path: str
    found: Any
    wanted: str

    def __str__(self) -> str:
        return f"{self.control}: {self.path}: wanted {self.wanted}, found {self.found!r}"


@dataclass(frozen=True, slots=True)
class Bound:
    """A value that may stand only in some forms, wherever one of the paths leads."""

    control: str
    paths: tuple[str, ...]
    allows: Callable[[Any], bool]
    wanted: str


@dataclass(frozen=True, slots=True)
class Demand:
    """A value that every container needs."""

    control: str
    path: str
    allows: Callable[[Any], bool]
    wanted: str
    of_pod: bool = False
    """The pod's own counts where the container says nothing."""


def _in(allowed: frozenset[Any]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and value in allowed


def _each(*paths: str) -> tuple[str, ...]:
    """The paths of every container."""
    return tuple(f"{container}.{path}" for container in _CONTAINERS for path in paths)


def _anywhere(path: str) -> tuple[str, ...]:
    """A path of the pod's security context and of those of its containers."""
    return (f"spec.securityContext.{path}", *_each(f"securityContext.{path}"))


def _is_unset(value: Any) -> bool:
    return not value


_HANDLERS = ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle.postStart", "lifecycle.preStop")
_HOSTS = tuple(f"{handler}.{kind}.host" for handler in _HANDLERS for kind in ("httpGet", "tcpSocket"))

BOUNDS = (
    Bound("host namespaces", ("spec.hostNetwork", "spec.hostPID", "spec.hostIPC"), _is_unset, "none of the host's"),
    Bound("privileged", _each("securityContext.privileged"), _is_unset, "false"),
    Bound("host process", _anywhere("windowsOptions.hostProcess"), _is_unset, "false"),
    Bound("operating system", ("spec.os.name",), lambda value: value == "linux", "linux"),
    Bound("capabilities", _each("securityContext.capabilities.add.*"), _in(frozenset({"NET_BIND_SERVICE"})), "none"),
    Bound("host ports", _each("ports.*.hostPort"), _is_unset, "none"),
    Bound("host of probes", _each(*_HOSTS), _is_unset, "the pod itself"),
    Bound("AppArmor", _anywhere("appArmorProfile.type"), _in(_PROFILES), "RuntimeDefault or Localhost"),
    Bound("SELinux", _anywhere("seLinuxOptions.type"), _in(_SELINUX), "a type of containers"),
    Bound("SELinux", _anywhere("seLinuxOptions.user"), _is_unset, "no user"),
    Bound("SELinux", _anywhere("seLinuxOptions.role"), _is_unset, "no role"),
    Bound("/proc", _each("securityContext.procMount"), lambda value: value == "Default", "Default"),
    Bound("seccomp", _anywhere("seccompProfile.type"), _in(_PROFILES), "RuntimeDefault or Localhost"),
    Bound("sysctls", ("spec.securityContext.sysctls.*.name",), _in(_SYSCTLS), "safe ones"),
    Bound("volumes", ("spec.volumes.*",), lambda volume: set(volume) - {"name"} <= _VOLUMES, "kinds without a host"),
    Bound("user", _anywhere("runAsUser"), lambda value: value != 0, "not root"),
    Bound("user", _anywhere("runAsNonRoot"), lambda value: value is True, "true"),
    Bound("ephemeral containers", ("spec.ephemeralContainers.*",), lambda _: False, "none beside ranks"),
    Bound("image", _each("image"), lambda value: _BY_DIGEST.fullmatch(str(value)) is not None, "name@sha256:..."),
)  # fmt: skip

DEMANDS = (
    Demand("privilege escalation", "securityContext.allowPrivilegeEscalation", lambda value: value is False, "false"),
    Demand("capabilities", "securityContext.capabilities.drop", lambda value: "ALL" in (value or ()), "drop ALL"),
    Demand("user", "securityContext.runAsNonRoot", lambda value: value is True, "true", of_pod=True),
    Demand("seccomp", "securityContext.seccompProfile.type", _in(_PROFILES), "RuntimeDefault", of_pod=True),
    Demand("image", "image", bool, "name@sha256:..."),
)


def violations(pod: Object, *, account: str = ACCOUNT, job: str | None = None) -> tuple[Violation, ...]:
    """All that forbids `pod`, or the template of one; empty: it is allowed.

    Args:
        pod: With `metadata` and `spec`.
        account: The one service account that gangs run as.
        job: Of a template, the Job that has it; of a pod, its owner says.
    """
    jobs = {job} if job is not None else set(_makers(pod))
    return (
        *_out_of_bounds(pod), *_unmet(pod), *_apparmor_annotations(pod), *_ours(pod, account), *_secrets(pod, jobs),
    )  # fmt: skip


def _out_of_bounds(pod: Object) -> Iterator[Violation]:
    for bound in BOUNDS:
        for pattern in bound.paths:
            for path, value in find(pod, pattern):
                if not bound.allows(value):
                    yield Violation(control=bound.control, path=path, found=value, wanted=bound.wanted)


def _unmet(pod: Object) -> Iterator[Violation]:
    containers = [found for pattern in _CONTAINERS for found in find(pod, pattern)]
    for path, container in containers:
        for demand in DEMANDS:
            value = _first(container, demand.path)
            if value is None and demand.of_pod:
                value = _first(pod, f"spec.{demand.path}")
            if not demand.allows(value):
                where = f"{path}.{demand.path}"
                yield Violation(control=demand.control, path=where, found=value, wanted=demand.wanted)


def _apparmor_annotations(pod: Object) -> Iterator[Violation]:
    for name, value in (_first(pod, "metadata.annotations") or {}).items():
        allowed = value in ("", "runtime/default") or str(value).startswith("localhost/")
        if name.startswith(_APPARMOR) and not allowed:
            yield Violation(
                control="AppArmor", path=f"metadata.annotations.{name}", found=value, wanted="runtime/default"
            )


def _ours(pod: Object, account: str) -> Iterator[Violation]:
    """What PodSecurity leaves open."""
    wanted = (
        ("run", f"metadata.labels.{RUN}", bool, "a run"),
        ("account", "spec.serviceAccountName", lambda value: value == account, account),
        ("account", "spec.serviceAccount", lambda value: value in (None, account), account),
        ("token", "spec.automountServiceAccountToken", lambda value: value is False, "false"),
    )
    for control, path, allows, words in wanted:
        value = _first(pod, path)
        if not allows(value):
            yield Violation(control=control, path=path, found=value, wanted=words)
    for path, token in find(pod, "spec.volumes.*.projected.sources.*.serviceAccountToken"):
        audience = token.get("audience")
        if audience != STORE_AUDIENCE:
            yield Violation(control="token", path=f"{path}.audience", found=audience, wanted=STORE_AUDIENCE)


def _makers(pod: Object) -> Iterator[str]:
    for reference in pod["metadata"].get("ownerReferences") or ():
        if (reference["apiVersion"], reference["kind"], reference.get("controller")) == ("batch/v1", "Job", True):
            yield reference["name"]


def _secrets(pod: Object, jobs: set[str]) -> Iterator[Violation]:
    """Files of the Secret of its own Job, kits of a federation, and names of Secrets for pulling images; none else."""
    own = {f"{job}.gang" for job in jobs}
    pulls = [(path, name) for path, name in find(pod, "spec.imagePullSecrets.*.name") if not _PULLS.fullmatch(name)]
    projected = find(pod, "spec.volumes.*.projected.sources.*.secret.name")
    mounted = [
        *find(pod, "spec.volumes.*.secret.secretName"),
        *(each for each in projected if not _KITS.fullmatch(each[1])),
    ]
    paths = _each("env.*.valueFrom.secretKeyRef.name", "envFrom.*.secretRef.name")
    variables = [found for pattern in paths for found in find(pod, pattern)]
    for path, name in (*pulls, *variables, *(each for each in mounted if each[1] not in own)):
        yield Violation(control="secret", path=path, found=name, wanted=" or ".join(own) or "none")


def find(value: Any, pattern: str, *, at: str = "") -> Iterator[tuple[str, Any]]:
    """Paths and values that `pattern` leads to; `*` is every item of a list. A null is nothing."""
    if value is None:
        return
    if not pattern:
        yield at, value
        return
    step, _, rest = pattern.partition(".")
    if step == "*":
        for index, item in enumerate(value if isinstance(value, list) else ()):
            yield from find(item, rest, at=f"{at}[{index}]")
    elif isinstance(value, dict) and step in value:
        yield from find(value[step], rest, at=f"{at}.{step}" if at else step)


def _first(value: Any, path: str) -> Any:
    return next((found for _, found in find(value, path)), None)
