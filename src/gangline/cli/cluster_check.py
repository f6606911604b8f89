"""Checks of `gangline doctor --cluster`: what the cluster serves, what this account may do, where gangs can run.

Each missing thing is named with what works without it. Only an API server that does not answer is an error.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from gangline.cli.machine_check import Finding
from gangline.cli.workspace import Workspace
from gangline.errors import GanglineError, storage_errors
from gangline.launch.kubernetes.admission_check import is_guarded, secrets_shown
from gangline.launch.kubernetes.client.api import ApiForbidden, KubernetesApi
from gangline.launch.kubernetes.cluster.components import KUBERNETES, installed, read_workflow_defaults
from gangline.launch.kubernetes.cluster.facts import ClusterFacts, missing_in_cluster, missing_rights, read_facts
from gangline.launch.kubernetes.cluster.rights import PLACER_CLUSTER, SELF_PLACER
from gangline.launch.kubernetes.placement.inventory import read_inventory
from gangline.line.gangs.launchers import open_cluster
from gangline.line.gangs.runners import code_isolation
from gangline.spec.config.site import PodTable, Site
from gangline.spec.devices import Inventory
from gangline.spec.record import Trust
from gangline.storage.site_paths import home

FACTS = "facts.json"
_UNSEEN = "no controller in its usual place has an image with a version that this account may see"
_TRUSTS: tuple[Trust, ...] = ("own", "fork")


def check_cluster(workspace: Workspace) -> tuple[list[Finding], Path]:
    """All findings in the order they are printed, and the file that keeps the facts for `gangline emit --cluster`.

    Raises:
        ConfigError: No cluster is configured.
        StorageError: It does not answer.
    """
    api = open_cluster(workspace.site, workspace.environ)
    facts = read_facts(api)
    path = home(workspace.repo) / FACTS
    with storage_errors(path.parent):
        path.write_bytes(facts.to_json())
    return [
        Finding(name="namespace", ok=True, text=api.namespace),
        *_versions(api),
        *_retries(api),
        *_served(facts, workspace.site),
        _placer(api, facts),
        _rights(api),
        _secrets(api),
        _admission(api),
        _account(api, workspace.site.pod),
        _servers(api, workspace.site),
        _image(workspace.site),
        _store(workspace.site),
        _model_code(workspace),
    ], path


def _versions(api: KubernetesApi) -> list[Finding]:
    """Installed components, each with the versions that it was tested with."""
    return [
        Finding(
            name=component.name if component is KUBERNETES else f"{component.name} version", ok=True,
            text=component.verdict(version) if version else f"unknown: {_UNSEEN} ({component.tested_text})",
        )
        for component, version in installed(api)
    ]  # fmt: skip


def _retries(api: KubernetesApi) -> list[Finding]:
    """Whether Kubeflow Pipelines tries a task again that failed; empty if the cluster has none of its settings."""
    name = "retries of pipelines"
    try:
        workflow_defaults = read_workflow_defaults(api)
    except ApiForbidden:
        return []
    if workflow_defaults is None:
        return []
    without = f"{workflow_defaults.consequence}; docs/guides/kubeflow.md changes it"
    return [
        Finding(
            name=name,
            ok=workflow_defaults.retries_failed_tasks,
            needed=False,
            text=f"ok ({workflow_defaults.retry_policy})",
            without=without,
        )
    ]


def _served(facts: ClusterFacts, site: Site) -> list[Finding]:
    trainer = Finding(
        name="trainjob", ok=facts.trainer is not None, needed=False, text=f"ok ({facts.trainer})",
        without="gangs are plain Indexed Jobs",
    )  # fmt: skip
    if site.launch.route in ("volcano", "kai"):
        return [trainer, _batch_scheduler(facts, site.launch.route)]
    kueue = Finding(
        name="kueue", ok=facts.kueue, needed=bool(site.launch.queue),
        text=f"ok, queues {', '.join(facts.queues) or 'none in this namespace'}",
        without="no ClusterQueue serves launch.queue" if site.launch.queue else "our placer starts gangs whole",
    )  # fmt: skip
    queue = site.launch.queue
    finding = Finding(
        name="queue", ok=not queue or queue in facts.queues, needed=bool(queue), text=f"{queue} ok",
        without=f"launch.queue {queue!r} is not among {', '.join(facts.queues) or 'the queues: there are none'}",
    )  # fmt: skip
    return [trainer, kueue, *([finding] if queue and facts.kueue else [])]


def _batch_scheduler(facts: ClusterFacts, route: Literal["volcano", "kai"]) -> Finding:
    """The scheduler that `launch.route` names; submit refuses a gang whose queue does not exist."""
    found = facts.volcano if route == "volcano" else facts.kai
    queues = None if found is None else found.queues
    known = "not known to this account" if queues is None else ", ".join(queues) or "none at all"
    without = f'no gang starts by launch.route = "{route}"; "gates" works without it'
    return Finding(name=route, ok=found is not None, text=f"ok, queues {known}", without=without)


def _placer(api: KubernetesApi, facts: ClusterFacts) -> Finding:
    """Is there a placer? Without one, drivers place the gangs that they follow, if they have the rights."""
    if facts.placer or facts.topologies:
        text = "ok" if facts.placer else "not needed: Kueue has a topology"
        return Finding(name="placer", ok=True, needed=False, text=text)
    missing = missing_rights(api, wanted=SELF_PLACER) + missing_in_cluster(api, wanted=PLACER_CLUSTER)
    text = "none" if missing else "none, and not needed: this account may place its own gangs"
    without = f"gangs of several pods wait for a driver with the placer's role; this one lacks {_some(missing)}"
    return Finding(name="placer", ok=not missing, needed=False, text=text, without=without)


def _rights(api: KubernetesApi) -> Finding:
    missing = missing_rights(api)
    text = f"this account lacks {len(missing)}" if missing else "ok"
    return Finding(name="rights", ok=not missing, text=text, without=f"ask for {_some(missing)}")


def _secrets(api: KubernetesApi) -> Finding:
    """Drivers write Secrets and read none, so that a compromised driver exposes no other's."""
    shown = secrets_shown(api)
    without = (
        f"this account may {', '.join(shown)} every Secret of {api.namespace}, and their answers show them;"
        " drive with the account gangline-driver of our manifests"
    )
    return Finding(name="secrets", ok=not shown, needed=False, text="this account sees none", without=without)


def _admission(api: KubernetesApi) -> Finding:
    without = (
        f"any account that may create Jobs in {api.namespace} may mount every Secret of it;"
        f" kubectl apply -k manifests/base/cluster, kubectl label namespace {api.namespace} gangline/gangs=true"
    )

    def look() -> str:
        return "pods get the Secret of their own Job alone" if is_guarded(api) else ""

    return _try("admission", look, without=without, needed=False)


def _some(missing: list[str]) -> str:
    return "; ".join(missing[:6]) + (f" and {len(missing) - 6} more" if len(missing) > 6 else "")


def _account(api: KubernetesApi, pod: PodTable) -> Finding:
    def look() -> str:
        found = api.get(f"/api/v1/namespaces/{api.namespace}/serviceaccounts/{pod.account}")
        return "ok" if found else ""

    return _try("account", look, without=f"make it: kubectl -n {api.namespace} create serviceaccount {pod.account}")


def _servers(api: KubernetesApi, site: Site) -> Finding:
    def look() -> str:
        inventory = read_inventory(api, site.pod, gpu=site.gpu, pool=site.launch.pool)
        pods = " and ".join(map(_pods, inventory.kinds))
        return f"{pods} fit ({inventory.origin})"

    return _try("servers", look, without="a gang would wait for ever")


def _pods(kind: Inventory) -> str:
    gpus = kind.gpus
    each = f"{gpus.count} x {gpus.name or 'GPU'}" if gpus else f"{kind.cores} CPU ranks"
    return f"{kind.num_nodes} pods of {each}"


def _image(site: Site) -> Finding:
    registry = site.registry
    ok = bool(registry.base) or registry.builder != "none"
    if registry.builder != "none":
        said = f"{registry.builder} builds it"
    else:
        said = f"{registry.base}, as it is" if registry.base else "the site names none"
    return Finding(name="image", ok=ok, text=said, without="set registry.base, or registry.builder and registry.image")


def _store(site: Site) -> Finding:
    url = site.store.url
    if not url.startswith("s3://"):
        return Finding(name="store", ok=False, text=url, without="pods need s3://; a folder serves this machine")
    endpoint = site.store.cluster_endpoint or site.store.endpoint
    ok = bool(endpoint) or "endpoint=" in url.partition("?")[2]
    return Finding(name="store", ok=ok, text=f"pods are given {endpoint or url}", without="set store.endpoint")


def _model_code(workspace: Workspace) -> Finding:
    """Where model code runs outside gangs: inspection of the model, memory run, smoke test."""
    at = {
        trust: code_isolation(workspace.repo, trust, site=workspace.site, environ=workspace.environ)
        for trust in _TRUSTS
    }
    bad = [each for each in at.values() if each.engine == "none"]
    words = {each.text: None for each in at.values()}
    return Finding(
        name="model code", ok=not bad, needed=False, text="; forks: ".join(words),
        without="model code runs with access to the driver's keys: sandbox.mode is off",
    )  # fmt: skip


def _try(name: str, look: Callable[[], str], *, without: str, needed: bool = True) -> Finding:
    """A check whose error message becomes its finding."""
    try:
        text = look()
    except ApiForbidden as error:
        return Finding(name=name, ok=False, needed=needed, text=str(error), without="ask for that right")
    except GanglineError as error:
        return Finding(name=name, ok=False, needed=needed, text=str(error), without=without)
    return Finding(name=name, ok=bool(text), needed=needed, text=text or "not there", without=without)
