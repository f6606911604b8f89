"""Runners of model code outside a gang: in the sandbox of this machine, or in a pod.

A machine whose sandbox hides files runs the code itself. If it hides none and ranks run on a cluster, a pod runs the
code: then the driver is often a pod that cannot create a sandbox and has access to the keys of the site.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gangline.launch.sandbox import Sandbox
from gangline.launch.sandbox.module_runner import ModuleRunner
from gangline.line.gangs.sandbox import local_runner, sandbox_of
from gangline.line.request.targets import launcher_of
from gangline.line.request.trust import KeptHome, kept_home_of
from gangline.spec.config.site import Site
from gangline.spec.record import Record, Trust
from gangline.storage import site_paths
from gangline.storage.objects.protocol import ObjectStore
from gangline.storage.open import open_store


@dataclass(frozen=True, kw_only=True, slots=True)
class CodeIsolation:
    """Description of how model code that runs outside a gang is isolated."""

    engine: str
    text: str
    gaps: str
    """What is not isolated."""
    warning: str = ""
    """Shown before the code runs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CodeOwner:
    """The commit whose code runs, and the run that needs it."""

    run: str
    project: str
    commit: str
    trust: Trust
    image: str | None
    """Image of its pods, by digest."""
    home: KeptHome | None = None
    """Home of its code on this machine; None: each process has one of its own."""

    @classmethod
    def of(cls, record: Record) -> "CodeOwner":
        """The owner for code that runs on behalf of a run."""
        return cls(
            run=record.run.id, project=record.run.project, commit=record.commit.sha, trust=record.commit.trust,
            image=record.inputs.image, home=kept_home_of(record),
        )  # fmt: skip


def open_runner(
    owner: CodeOwner, repo: Path, *, site: Site, environ: Mapping[str, str], store: ObjectStore
) -> ModuleRunner:
    """A runner for the model code of `owner`; `site` has the target of the run."""
    if not runs_in_pod(sandbox_of(repo, owner.trust, site=site, environ=environ), site):
        return local_runner(repo, site=site, environ=environ, home=owner.home)
    from gangline.launch.kubernetes.module_runner import OwningRun, PodRunner
    from gangline.line.gangs.launchers import open_cluster

    return PodRunner(
        connect=partial(open_cluster, site, environ),
        store=store,
        pods_store=partial(_pods_store, store, site, environ),
        whose=OwningRun(run=owner.run, project=owner.project, commit=owner.commit, image=owner.image),
        launch=site.launch,
        pod=site.pod,
    )


def code_isolation(repo: Path, trust: Trust, *, site: Site, environ: Mapping[str, str]) -> CodeIsolation:
    """How model code of a commit of `trust` is isolated outside a gang."""
    sandbox = sandbox_of(repo, trust, site=site, environ=environ)
    if runs_in_pod(sandbox, site):
        return CodeIsolation(
            engine="pod",
            text=f"a pod of the cluster, because this machine has no sandbox ({sandbox.engine.text})",
            gaps="it reaches name servers and the store, which refuses requests without a credential",
        )
    engine = sandbox.engine
    return CodeIsolation(engine=engine.name, text=engine.text, gaps=engine.gaps, warning=sandbox.warning)


def runs_in_pod(sandbox: Sandbox, site: Site) -> bool:
    """Whether model code runs in a pod; with `sandbox.mode = "off"` own commits run on this machine without one."""
    if not launcher_of(site.launch.target).has_pods or sandbox.engine.hides:
        return False
    return site.sandbox.mode != "off" or not sandbox.is_own


def _pods_store(store: ObjectStore, site: Site, environ: Mapping[str, str]) -> ObjectStore:
    """`store` with the address for pods, because a signed URL is valid for one server name."""
    from gangline.line.gangs.podsets import pod_store_url

    return open_store(
        pod_store_url(store.url, site),
        region=site.store.region,
        credentials=site_paths.store_credentials(site, environ),
    )
