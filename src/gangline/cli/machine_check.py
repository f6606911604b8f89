"""Checks of `gangline doctor` on this machine: findings, each with what works without it. Never raises."""

import json
import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from gangline.errors import GanglineError
from gangline.measure.machine import gpu_files
from gangline.spec.versions import PYTHONS, TORCHES, is_seen

_TORCH = """
import json, torch, torch.distributed as dist
gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
have = {name: dist.is_available() and getattr(dist, f"is_{name}_available")() for name in ("gloo", "nccl")}
print(json.dumps({"version": torch.__version__, "gpus": gpus, **have}))
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One check of this machine: a row of `gangline doctor`."""

    name: str
    ok: bool
    text: str
    needed: bool = True
    """`gangline run` on this machine needs it."""
    without: str = ""
    """What to do, or what works without it."""

    def __str__(self) -> str:
        return f"{self.name} {self.text}"


def check_machine(repo: Path, site: Path | None) -> list[Finding]:
    """All findings, in the order they are printed."""
    torch, gpu = check_torch()
    return [
        check_python(), check_git(), torch, check_cores(), check_store(repo, site), check_sandbox(repo, site), gpu,
        check_docker(), *check_slurm(repo, site),
    ]  # fmt: skip


def check_python() -> Finding:
    """The version of Python, and the versions that gangline was run with."""
    version = platform.python_version()
    return Finding(
        name="python", ok=sys.version_info >= (3, 11), text=_torch_finding(version, PYTHONS),
        without="install python 3.11 or newer",
    )  # fmt: skip


def check_git() -> Finding:
    """The version of git."""
    said = _output(["git", "--version"])
    version = said.split()[2] if said and len(said.split()) > 2 else ""
    return Finding(
        name="git", ok=bool(version), text=f"{version} ok" if version else "not found", without="install git"
    )


def check_torch() -> tuple[Finding, Finding]:
    """torch with its backends, and the GPUs it sees; asked in a child, so that this process stays light."""
    said = _output([sys.executable, "-c", _TORCH], seconds=120)
    facts = json.loads(said.splitlines()[-1]) if said else {}
    backends = [name for name in ("gloo", "nccl") if facts.get(name)]
    missing = [f"no {name}" for name in ("gloo", "nccl") if not facts.get(name)]
    version = facts.get("version", "")
    text = f"{_torch_finding(version, TORCHES)}, {', '.join(backends + missing)}" if facts else "does not import"
    is_old = bool(facts) and Version(version) < Version(TORCHES[0])
    gpus = facts.get("gpus", [])
    return (
        Finding(
            name="torch", ok=bool(backends) and not is_old, text=text, needed=bool(facts or gpu_files()),
            without=f"install torch {TORCHES[0]} or newer" if is_old
            else "install gangline[train] for GPUs and for tasks; other programs take packages from their lock",
        ),
        Finding(
            name="gpu", ok=bool(gpus), needed=False, text=f"{len(gpus)} x {gpus[0]}" if gpus else "none",
            without="runs use the cores; plans for other machines come from site.toml",
        ),
    )  # fmt: skip


def _torch_finding(version: str, seen: tuple[str, ...]) -> str:
    """The version, and whether gangline was run with it; those between and beyond may well work."""
    return f"{version} {'ok' if is_seen(version, seen) else 'not seen'} (seen: {', '.join(seen)})"


def check_cores() -> Finding:
    """Cores that this process may use."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    words = {1: "one rank", 2: "two ranks"}.get(count, f"up to {count} ranks")
    return Finding(name="cores", ok=True, text=f"{count}: {words}")


def check_store(repo: Path, site: Path | None) -> Finding:
    """The site's store, probed; outside a repository the folder a new one would use."""
    from gangline.cli.workspace import open_workspace
    from gangline.storage.probe import probe
    from gangline.storage.s3.run_credentials import credential_policy
    from gangline.storage.s3.unsigned_writes import WARNING, accepts_unsigned_writes

    try:
        store = open_workspace(repo, site).store
        store_probe, lends, unsigned = probe(store), credential_policy(store), accepts_unsigned_writes(store)
    except GanglineError as error:
        inside = (repo / "line.toml").exists()
        way = "gangline store doctor shows more" if inside else "it comes with a model repository"
        return Finding(name="store", ok=False, needed=inside, text=str(error), without=way)
    bad = [check for check in store_probe.checks if not check.passed]
    text = f"ok, conditional writes {'yes' if store_probe.conditional_writes else 'no: one driver alone'}"
    if store.url.startswith("s3:"):
        text += f", lends {lends}"
    if unsigned:
        text += f"; warning: {WARNING}"
    if bad:
        text = "; ".join(f"{check.name}: {check.reason}" for check in bad)
    return Finding(name="store", ok=not bad, text=text, without="gangline store doctor shows more")


def check_sandbox(repo: Path, site: Path | None) -> Finding:
    """The sandbox of model code here, and what it does not hide; tried for own commits and for forks."""
    from gangline.cli.workspace import open_workspace
    from gangline.launch.sandbox import find_engine
    from gangline.launch.sandbox.engines import WHAT_WORKS

    try:
        mode = open_workspace(repo, site).site.sandbox.mode
    except GanglineError:  # check_store says that the site does not read
        mode = "auto"
    own, fork = (find_engine(mode, wide=wide) for wide in (True, False))
    text = f"{own.text} ({own.gaps})" + (f"; forks: {fork.text}" if fork.text != own.text else "")
    return Finding(
        name="sandbox", ok=own.name != "none" and fork.name != "none", needed=mode == "required", text=text,
        without=f"{WHAT_WORKS}; until then model code of own commits runs as this user, and forks are refused",
    )  # fmt: skip


def check_docker() -> Finding:
    """A client without an engine that answers builds nothing."""
    engine = next(
        (name for name in ("docker", "podman") if _output([name, "info", "--format", "{{.}}"], seconds=5)), None
    )
    return Finding(
        name="docker", ok=engine is not None, needed=False, text="ok" if engine == "docker" else f"by {engine} ok",
        without="no images are built; runs use this environment",
    )  # fmt: skip


def check_slurm(repo: Path, site: Path | None) -> list[Finding]:
    """Whether Slurm would take a gang of the site, and its servers; empty where gangs run elsewhere."""
    from gangline.cli.workspace import open_workspace
    from gangline.line.gangs.slurm_site import slurm_inventory
    from gangline.line.request.targets import launcher_of

    try:
        stated = open_workspace(repo, site).site
    except GanglineError:  # check_store says that the site does not read
        return []
    if not launcher_of(stated.launch.target).has_jobs:
        return []
    try:
        inventory = slurm_inventory(stated)
    except GanglineError as error:
        return [Finding(name="slurm", ok=False, text=str(error), without="gangline run --target local works here")]
    each = (
        f"{inventory.gpus.count} GPUs {inventory.gpus.name}".strip() if inventory.gpus else f"{inventory.cores} cores"
    )
    return [Finding(name="slurm", ok=True, text=f"ok, {inventory.num_nodes} servers x {each}")]


def _output(arguments: list[str], seconds: float = 20) -> str:
    """What a program prints; empty when it is not there, fails or hangs. `git --version` reads no repository."""
    try:
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=seconds, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
