"""Kubernetes manifests of a run's training gang, as YAML for `kubectl apply`."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from gangline.errors import ConfigError, UsageError
from gangline.line.gangs.launchers import open_cluster
from gangline.line.gangs.podsets import make_podset
from gangline.spec.codec import from_json
from gangline.spec.config.line import Line
from gangline.spec.config.site import Site
from gangline.spec.gang.podset import PodSet
from gangline.spec.plan import Plan
from gangline.spec.record import Record
from gangline.spec.run_flags import GOOD, stage
from gangline.storage import site_paths
from gangline.storage.objects.blobs import get_blob

GangKind = Literal["trainjob", "job", "jobset", "runtime"]
"""The root of a gang; or the ClusterTrainingRuntime that an administrator creates where `launch.runtime` names one."""

RUNTIME = "gangline"
"""Its name where the site does not say another."""


def emit_gang(
    repo: Path,
    record: Record,
    kind: GangKind,
    *,
    site: Site,
    environ: Mapping[str, str],
    facts_file: Path | None = None,
    check: bool = False,
) -> str:
    """The training gang of `record` as YAML for `kubectl apply`, in the order of creation.

    Args:
        repo: Folder of the line.
        record: Of a run at a cluster whose plan stage is done.
        kind: Of the root object, or `runtime`.
        site: Where it runs.
        environ: For kubeconfig and secret references.
        facts_file: What `gangline doctor --cluster` wrote; then no server is asked.
        check: Let the API server judge every object by dry run, creating nothing.

    Raises:
        UsageError: The run is not planned yet, or its ranks are on this machine.
        ConfigError: Something of it cannot be said to a cluster, or the server refuses it.
    """
    try:
        from gangline.launch.kubernetes.objects.manifest import dry_run, render_runtime_yaml, render_yaml
    except ModuleNotFoundError as error:
        raise ConfigError("objects are YAML; pip install 'gangline[kubernetes]' brings its writer") from error
    from gangline.launch.kubernetes.cluster.facts import ClusterFacts, read_facts
    from gangline.launch.kubernetes.objects.render_context import RenderContext, choose_route

    podset = training_podset(repo, record, site=site, environ=environ)
    api = open_cluster(site, environ) if check or facts_file is None else None
    facts = read_facts(api) if api else ClusterFacts.from_json(_read(facts_file))
    setting = RenderContext(
        podset=podset,
        namespace=api.namespace if api else site.launch.namespace or "default",
        pod=site.pod,
        launch=site.launch,
        facts=facts,
        route=choose_route(podset, site.launch, facts),
        now=datetime.now(UTC),
    )
    if kind == "runtime":
        return render_runtime_yaml(setting, site.launch.runtime or RUNTIME)
    if api is not None and check:
        dry_run(api, kind, setting)
    return render_yaml(kind, setting)


def _read(facts_file: Path | None) -> bytes:
    assert facts_file is not None, "without a cluster there is a file"
    try:
        return facts_file.read_bytes()
    except OSError as error:
        raise UsageError(
            f"--cluster {facts_file}: {error.strerror}; gangline doctor --cluster writes such a file"
        ) from error


def training_podset(repo: Path, record: Record, *, site: Site, environ: Mapping[str, str]) -> PodSet:
    """The PodSet that the submit stage of `record` makes.

    Raises:
        UsageError: Its plan stage is not done, or its ranks are on this machine.
    """
    run = record.run.id
    if record.run.target == "local":
        raise UsageError(f"the ranks of {run} are processes of this machine; gangline run --target kubernetes --again")
    if record.plan is None or stage(record, "plan").state not in GOOD:
        raise UsageError(f"{run} has no plan yet; gangline run --target kubernetes --until plan makes one")
    store = site_paths.open_site_store(repo, site, environ)
    line = from_json(Line, get_blob(store, str(stage(record, "resolve").outputs["line"])))
    plan = Plan.from_json(get_blob(store, record.plan.key))
    return make_podset(plan, record=record, line=line, site=site, store=store)
