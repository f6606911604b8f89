"""Builds the servers of the test cluster from the Go modules beside this file, outside the tree.

A module's folder is known by the digest of its `go.mod`, `go.sum` and flags: what is there is left alone, a changed
pin builds anew, and what is half done has another name. Knows Go; what the servers are for is `rig`'s.
"""

import hashlib
import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.rig import places
from tests.cluster.rig.output import say
from tests.cluster.rig.trouble import Lacking, Trouble

_KUBERNETES = "v1.34.4"
_VERSION_PACKAGES = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")


@dataclass(frozen=True, kw_only=True, slots=True)
class Module:
    """One folder with a `go.mod`."""

    name: str
    packages: tuple[str, ...]
    variables: tuple[str, ...] = ()
    """`package.name=value`, written into the programs."""

    @property
    def source(self) -> Path:
        return Path(__file__).parent / self.name

    @property
    def folder(self) -> Path:
        """Where its programs are kept."""
        reported = hashlib.sha256(repr((self.packages, self.variables)).encode())
        for each in sorted(self.source.iterdir()):
            reported.update(each.name.encode() + b"\0" + each.read_bytes())
        return places.home() / "servers" / f"{self.name}-{reported.hexdigest()[:12]}"

    @property
    def programs(self) -> dict[str, str]:
        """Package by program name."""
        return {self._program(package): package for package in self.packages}

    def _program(self, package: str) -> str:
        """As Go names it, but that a module's own package, or one of a major version, is called as its folder."""
        last = package.rsplit("/", 1)[-1]
        return self.name if last in (".", "v3") else last


def _kubernetes_version() -> tuple[str, ...]:
    """Else the servers call themselves v0.0.0 and clients refuse them."""
    major, minor, _ = _KUBERNETES.lstrip("v").split(".")
    reported = {"gitVersion": _KUBERNETES, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    return tuple(f"{package}.{name}={value}" for package in _VERSION_PACKAGES for name, value in reported.items())


OPERATORS = "operators"
"""Module of what only some suites put into the cluster; the cluster itself comes up without it."""
_COMMANDS = ("kubectl", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy")
MODULES = (
    Module(name="pause", packages=(".",)),
    Module(name="etcd", packages=("go.etcd.io/etcd/server/v3",)),
    Module(name="coredns", packages=("github.com/coredns/coredns",)),
    Module(
        name="kubernetes",
        packages=tuple(f"k8s.io/kubernetes/cmd/{name}" for name in _COMMANDS),
        variables=_kubernetes_version(),
    ),
    Module(
        name=OPERATORS,
        packages=(
            "sigs.k8s.io/jobset",
            "github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager",
            "sigs.k8s.io/kueue/cmd/kueue",
        ),
    ),
)


def program(name: str) -> Path:
    """Path of a server, there or not."""
    return next(module.folder / name for module in MODULES if name in module.programs)


def missing(*, operators: bool = False) -> list[tuple[Module, str]]:
    """Programs that are not there; `operators`: those of the suites, too."""
    modules = [module for module in MODULES if operators or module.name != OPERATORS]
    return [(module, name) for module in modules for name in module.programs if not (module.folder / name).is_file()]


def build(*, operators: bool = False) -> None:
    """Build what is missing, a line each; raises `Lacking` without Go, `Trouble` with the compiler's last words."""
    wanted = missing(operators=operators)
    if wanted and shutil.which("go") is None:
        raise Lacking(
            f"the servers of the test cluster ({', '.join(name for _, name in wanted)}) are built by Go, which is not "
            "on the PATH; install it (Debian: apt-get install golang; any system: go.dev/dl) and try again"
        )
    for number, (module, name) in enumerate(wanted, 1):
        _build(module, name, f"{number} of {len(wanted)}")


def _build(module: Module, name: str, place: str) -> None:
    say("servers", f"{name} ({place}): from Go modules, minutes the first time")
    began = time.monotonic()
    module.folder.mkdir(parents=True, exist_ok=True)
    staged = module.folder / f".{name}.{os.getpid()}"
    ended = subprocess.run(
        _command(module, name, staged),
        cwd=module.source,
        env=_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        staged.unlink(missing_ok=True)
        raise Trouble(f"{name} did not build (code {ended.returncode}):\n{ended.stderr[-2000:]}")
    staged.replace(module.folder / name)
    say("servers", f"{name} ({place}): {time.monotonic() - began:.0f} s")


def _command(module: Module, name: str, target: Path) -> list[str]:
    linked = " ".join(["-s", "-w", *(f"-X {each}" for each in module.variables)])
    return [
        "go", "build", "-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags", linked,
        "-o", str(target), module.programs[name],
    ]  # fmt: skip


def _environment() -> dict[str, str]:
    """That of the caller, without flags that would change what is built."""
    return {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOWORK": "off"}
