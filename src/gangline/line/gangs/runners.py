"""Runners of model code outside a gang: in the sandbox of this machine, or in a pod where ranks are pods.

A machine whose sandbox hides files runs the code itself. Where it hides none and ranks run on a cluster, a pod runs
it: the driver is often a pod itself then, which may make no sandbox and has the keys of the site within reach.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gangline.launch.sandbox import Sandbox
from gangline.launch.sandbox.module_runner import ModuleRunner
from gangline.line.gangs.launchers import open_cluster
from gangline.line.gangs.podsets import pod_store_url
from gangline.line.gangs.sandbox import local_runner, sandbox_of
from gangline.line.request.targets import parse_target
from gangline.spec.config.site import Site
from gangline.spec.record import Record, Trust
from gangline.storage import site_paths
from gangline.storage.objects.protocol import ObjectStore
from gangline.storage.open import open_store


@dataclass(frozen=True, kw_only=True, slots=True)
class CodeIsolation:
    """What keeps model code that runs once apart, for people."""

    engine: str
    text: str
    gaps: str
    """What it does not hide."""
    warning: str = ""
    """What they have to know before."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CodeOwner:
    """The commit whose code runs, and the run for which it does."""

    run: str
    project: str
    commit: str
    trust: Trust
    image: str | None
    """Of its pods, by digest."""

    @classmethod
    def of(cls, record: Record) -> "CodeOwner":
        return cls(
            run=record.run.id, project=record.run.project, commit=record.commit.sha, trust=record.commit.trust,
            image=record.inputs.image,
        )  # fmt: skip


def open_runner(
    subject: CodeOwner, repo: Path, *, site: Site, environ: Mapping[str, str], store: ObjectStore
) -> ModuleRunner:
    """What runs the model code of `subject` once; `site` has the target of the run."""
    if not runs_in_pod(sandbox_of(repo, subject.trust, site=site, environ=environ), site):
        return local_runner(repo, site=site, environ=environ)
    from gangline.launch.kubernetes.module_runner import OwningRun, PodRunner

    return PodRunner(
        connect=partial(open_cluster, site, environ),
        store=store,
        pods_store=partial(_pods_store, store, site, environ),
        whose=OwningRun(run=subject.run, project=subject.project, commit=subject.commit, image=subject.image),
        launch=site.launch,
        pod=site.pod,
    )


def code_isolation(repo: Path, trust: Trust, *, site: Site, environ: Mapping[str, str]) -> CodeIsolation:
    """What model code of a commit of `trust` is kept apart by when it runs once."""
    sandbox = sandbox_of(repo, trust, site=site, environ=environ)
    if runs_in_pod(sandbox, site):
        return CodeIsolation(
            engine="pod",
            text=f"a pod of the cluster, as this machine hides nothing from it ({sandbox.engine.text})",
            gaps="it reaches the addresses of name servers and of the store, which answers nobody without a credential",
        )
    engine = sandbox.engine
    return CodeIsolation(engine=engine.name, text=engine.text, gaps=engine.gaps, warning=sandbox.warning)


def runs_in_pod(sandbox: Sandbox, site: Site) -> bool:
    """Under `sandbox.mode = "off"` own commits run as on a machine alone: without anything."""
    if parse_target(site.launch.target)[0] != "kubernetes" or sandbox.engine.hides:
        return False
    return site.sandbox.mode != "off" or not sandbox.is_own


def _pods_store(store: ObjectStore, site: Site, environ: Mapping[str, str]) -> ObjectStore:
    """`store` by the address that pods reach: a signed URL is good for the server whose name it has."""
    return open_store(
        pod_store_url(store.url, site),
        region=site.store.region,
        credentials=site_paths.store_credentials(site, environ),
    )
