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
"""Kind of the gang's root object; or `runtime`, the ClusterTrainingRuntime that an administrator creates."""

RUNTIME = "gangline"
"""Its name if `launch.runtime` names none."""


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
        record: Of a run on a cluster whose plan stage is done.
        kind: Of the root object, or `runtime`.
        site: Where it runs.
        environ: For kubeconfig and secret references.
        facts_file: Output of `gangline doctor --cluster`, used instead of the API server.
        check: Let the API server validate every object by a dry run.

    Raises:
        UsageError: The run is not planned yet, or its ranks are in no pods.
        ConfigError: The gang cannot be expressed for this cluster, or the server refuses it.
    """
    try:
        from gangline.launch.kubernetes.objects.manifest import dry_run, render_runtime_yaml, render_yaml
    except ModuleNotFoundError as error:
        raise ConfigError("writing YAML needs a package: pip install 'gangline[kubernetes]'") from error
    from gangline.launch.kubernetes.cluster.facts import ClusterFacts, read_facts
    from gangline.launch.kubernetes.objects.render_context import RenderContext, choose_route

    podset = training_podset(repo, record, site=site, environ=environ)
    api = open_cluster(site, environ) if check or facts_file is None else None
    facts = read_facts(api) if api else ClusterFacts.from_json(_read(facts_file))
    context = RenderContext(
        podset=podset,
        namespace=api.namespace if api else site.launch.namespace or "default",
        pod=site.pod,
        launch=site.launch,
        facts=facts,
        route=choose_route(podset, site.launch, facts),
        now=datetime.now(UTC),
    )
    if kind == "runtime":
        return render_runtime_yaml(context, site.launch.runtime or RUNTIME)
    if api is not None and check:
        dry_run(api, kind, context)
    return render_yaml(kind, context)


def _read(facts_file: Path | None) -> bytes:
    assert facts_file is not None, "the facts are read from a file or from the API server"
    try:
        return facts_file.read_bytes()
    except OSError as error:
        raise UsageError(
            f"--cluster {facts_file}: {error.strerror}; gangline doctor --cluster writes such a file"
        ) from error


def training_podset(repo: Path, record: Record, *, site: Site, environ: Mapping[str, str]) -> PodSet:
    """The PodSet that the submit stage of `record` submits.

    Raises:
        UsageError: Its plan stage is not done, or its ranks are in no pods.
    """
    run = record.run.id
    if not record.run.launcher.has_pods:
        raise UsageError(
            f"{run} runs its ranks at {record.run.target}, in no pods; gangline run --target kubernetes --again"
        )
    if record.plan is None or stage(record, "plan").state not in GOOD:
        raise UsageError(f"{run} has no plan yet; gangline run --target kubernetes --until plan makes one")
    store = site_paths.open_site_store(repo, site, environ)
    line = from_json(Line, get_blob(store, str(stage(record, "resolve").outputs["line"])))
    plan = Plan.from_json(get_blob(store, record.plan.key))
    return make_podset(plan, record=record, line=line, site=site, store=store)
