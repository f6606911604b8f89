"""Where model code runs once for a run: in the sandbox of this machine, or in a pod where its ranks are pods anyway.

One rule: a machine that hides files from model code runs it. Where none does, and ranks run on a cluster, a pod does:
the driver is often a pod itself then, which may make no sandbox, and has the keys of the site beside it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gangline.launch.sandbox import Sandbox
from gangline.launch.sandbox.runner import Runner
from gangline.line import places
from gangline.line.launchers import open_cluster
from gangline.line.podsets import pod_store_url
from gangline.line.sandboxes import local_runner, sandbox_of
from gangline.line.targets import meaning
from gangline.spec.record import Record, Trust
from gangline.spec.site import Site
from gangline.storage.open import open_store
from gangline.storage.protocol import ObjectStore


@dataclass(frozen=True, kw_only=True, slots=True)
class Apart:
    """What keeps model code that runs once apart, for people."""

    engine: str
    text: str
    gaps: str
    """What it does not hide."""
    warning: str = ""
    """What they have to know before."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """The commit whose code runs, and the run for which it does."""

    run: str
    project: str
    commit: str
    trust: Trust
    image: str | None
    """Of its pods, by digest."""

    @classmethod
    def of(cls, record: Record) -> "Subject":
        return cls(
            run=record.run.id, project=record.run.project, commit=record.commit.sha, trust=record.commit.trust,
            image=record.inputs.image,
        )  # fmt: skip


def runner_of(subject: Subject, repo: Path, *, site: Site, environ: Mapping[str, str], store: ObjectStore) -> Runner:
    """What runs the model code of `subject` once; `site` has the target of the run."""
    if not runs_in_pod(sandbox_of(repo, subject.trust, site=site, environ=environ), site):
        return local_runner(repo, site=site, environ=environ)
    from gangline.launch.kubernetes.once import PodRunner, Whose

    return PodRunner(
        connect=partial(open_cluster, site, environ),
        store=store,
        pods_store=partial(_pods_store, store, site, environ),
        whose=Whose(run=subject.run, project=subject.project, commit=subject.commit, image=subject.image),
        launch=site.launch,
        pod=site.pod,
    )


def kept_apart(repo: Path, trust: Trust, *, site: Site, environ: Mapping[str, str]) -> Apart:
    """What model code of a commit of `trust` is kept apart by when it runs once."""
    sandbox = sandbox_of(repo, trust, site=site, environ=environ)
    if runs_in_pod(sandbox, site):
        return Apart(
            engine="pod",
            text=f"a pod of the cluster, as this machine hides nothing from it ({sandbox.engine.text})",
            gaps="it reaches the addresses of name servers and of the store, which answers nobody without a credential",
        )
    engine = sandbox.engine
    return Apart(engine=engine.name, text=engine.text, gaps=engine.gaps, warning=sandbox.warning)


def runs_in_pod(sandbox: Sandbox, site: Site) -> bool:
    """Under `sandbox.mode = "off"` own commits run as on a machine alone: without anything."""
    if meaning(site.launch.target)[0] != "kubernetes" or sandbox.engine.hides:
        return False
    return site.sandbox.mode != "off" or not sandbox.is_own


def _pods_store(store: ObjectStore, site: Site, environ: Mapping[str, str]) -> ObjectStore:
    """`store` by the address that pods reach: a signed URL is good for the server whose name it has."""
    return open_store(
        pod_store_url(store.url, site), region=site.store.region, credentials=places.store_credentials(site, environ)
    )
