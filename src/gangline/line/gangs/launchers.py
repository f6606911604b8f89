"""Launcher of a site's target, with the secrets that it may pass to a gang.

Secrets of programs that track by themselves are the token of their tracker, and MLflow's own id of the run.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gangline.errors import ConfigError, GanglineError, IntegrityError, UsageError
from gangline.launch.protocol import Launcher
from gangline.launch.sandbox import Sandbox
from gangline.line.gangs.gang_secrets import read_secret, read_source_secret
from gangline.line.gangs.logs import stored_lines
from gangline.line.gangs.sandbox import sandbox_of
from gangline.line.gangs.slurm_site import slurm_inventory, slurm_root
from gangline.line.gangs.stated_network import stated_network
from gangline.line.record.store import read_record
from gangline.line.request.targets import launcher_of, parse_target
from gangline.line.request.trust import Rights, require_scoped_credentials
from gangline.metrics.record_values import price_at
from gangline.spec.config.secrets import VARIABLE, resolve_secret
from gangline.spec.config.site import Site
from gangline.spec.devices import Inventory
from gangline.spec.gang.driver_orders import SOURCE_SECRET
from gangline.spec.gang.podset import PodSet
from gangline.spec.plan import Plan
from gangline.spec.record import gang_prefix, run_prefix
from gangline.storage import site_paths
from gangline.storage.objects.blobs import get_blob
from gangline.storage.objects.protocol import ObjectStore
from gangline.storage.s3.run_credentials import SHARED_INPUTS, scoped_credentials
from gangline.trackers.operations import tracked_run
from gangline.trackers.programs import MLFLOW_RUN, MLFLOW_TOKEN, WANDB_TOKEN, joined_trackers
from gangline.trackers.writer_process import WriterProcess, writer_settings

if TYPE_CHECKING:
    from gangline.launch.kubernetes.client.api import KubernetesApi, Object

FindOwner = Callable[["KubernetesApi"], "Object | None"]
"""Finds the Kubernetes object that owns the gangs of a cluster, with which they are deleted."""
OpenLauncher = Callable[..., Launcher]
"""Called with the arguments of `open_launcher`."""
CHECKPOINT_KEY = "checkpoint-key"
STORE_CREDENTIALS = "store-credentials"

TRACKER_SECRETS = (MLFLOW_RUN, MLFLOW_TOKEN, WANDB_TOKEN)
"""Variables that come from trackers where the line does not name them."""


def gangs_root(repo: Path) -> Path:
    """Folder of the gangs of this machine."""
    return site_paths.home(repo) / "gangs"


def open_launcher(
    repo: Path,
    *,
    site: Site,
    environ: Mapping[str, str],
    store: ObjectStore,
    rights: Rights | None = None,
    find_owner: FindOwner | None = None,
    note: Callable[[str], object] | None = None,
) -> Launcher:
    """The launcher of the site's target. Reading status and cancelling need none of the arguments after `store`.

    Args:
        repo: Folder of the line.
        site: Names the target.
        environ: For secret references.
        store: Of the run.
        rights: Of the run whose gangs are submitted.
        find_owner: Finds the owner of gangs of a cluster.
        note: With it, a cluster that does not answer is retried for some minutes; called with each wait.

    Raises:
        ConfigError: This installation has no launcher for the target, or no cluster is configured.
        StorageError: The cluster does not answer.
    """
    ranks_at, _ = parse_target(site.launch.target)
    secrets = secret_reader(store, site, environ, rights, repo=repo)
    match ranks_at:
        case "local":
            from gangline.launch.local import LocalLauncher

            targets = site_paths.targets(repo, site)
            return LocalLauncher(
                gangs_root(repo), store=store, secrets=secrets, targets=targets,
                sandbox=gang_sandbox(repo, rights, site=site, environ=environ),
            )  # fmt: skip
        case "slurm":
            from gangline.launch.slurm.launcher import SlurmLauncher

            return SlurmLauncher(
                slurm_root(site), store=store, secrets=secrets, table=site.slurm, fabric=stated_network(environ),
                sandbox=gang_sandbox(repo, rights, site=site, environ=environ),
            )  # fmt: skip
        case "kubernetes":
            from gangline.launch.kubernetes.cluster.facts import read_facts
            from gangline.launch.kubernetes.follow.api_retry import report_retries, retry_while_unavailable
            from gangline.launch.kubernetes.launcher import KubernetesLauncher

            api = open_cluster(site, environ)
            facts = report_retries(retry_while_unavailable(partial(read_facts, api)), note) if note else read_facts(api)
            return KubernetesLauncher(
                api, facts=facts, launch=site.launch, pod=site.pod, secrets=secrets,
                owner=find_owner(api) if find_owner else None, stored_logs=partial(stored_logs, store),
                fabric=stated_network(environ),
            )  # fmt: skip


def gang_sandbox(repo: Path, rights: Rights | None, *, site: Site, environ: Mapping[str, str]) -> Sandbox | None:
    """Sandbox of gangs with these rights on this machine; None without rights, when no gang is started."""
    if rights is None:
        return None
    return sandbox_of(repo, "fork" if rights.is_fork else "own", site=site, environ=environ, home=rights.home)


def open_cluster(site: Site, environ: Mapping[str, str]) -> "KubernetesApi":
    """The API server of the site's kubeconfig context, or of the pod that this process runs in.

    Raises:
        ConfigError: No cluster is configured, or the client is not installed.
    """
    try:
        from gangline.launch.kubernetes.client.client import connect
    except ImportError as error:
        raise ConfigError("launch.target kubernetes: the client is missing; install gangline[kubernetes]") from error
    return connect(environ, context=site.launch.context, namespace=site.launch.namespace)


def cluster_inventory(site: Site, environ: Mapping[str, str]) -> Inventory:
    """Devices that ranks may use on the site's cluster."""
    if launcher_of(site.launch.target).has_jobs:
        return slurm_inventory(site)
    from gangline.launch.kubernetes.cluster.facts import read_facts
    from gangline.launch.kubernetes.objects.render_context import why_one_kind
    from gangline.launch.kubernetes.placement.inventory import read_inventory

    api = open_cluster(site, environ)
    inventory = read_inventory(api, site.pod, gpu=site.gpu, pool=site.launch.pool)
    return (
        replace(inventory, one_kind_because=why_one_kind(site.launch, read_facts(api)))
        if inventory.others
        else inventory
    )


def stored_logs(store: ObjectStore, podset: PodSet, rank: int) -> Iterator[str]:
    """Lines of a rank's log that its pod stored; none if it stored none."""
    prefix = gang_prefix(run_prefix(podset.project, podset.commit, podset.run))
    role = podset.role if podset.role == "prove" else _role_of_plan(store, podset)
    return stored_lines(store, prefix, role, rank)


def _role_of_plan(store: ObjectStore, podset: PodSet) -> str:
    plan = Plan.from_json(get_blob(store, podset.plan))
    if plan.worker:
        return f"worker-{plan.worker}"
    return f"seed-{plan.seed}" if plan.is_seed else plan.role


def secret_reader(
    store: ObjectStore, site: Site, environ: Mapping[str, str], rights: Rights | None, *, repo: Path | None = None
) -> Callable[[str], bytes]:
    """A function from a name in `PodSet.secrets` to its value, within `rights`.

    `repo` is the folder of the line; None: its programs join no tracker.
    """
    of_trackers: dict[str, bytes] = {}

    def read_gang_secret(name: str) -> bytes:
        if rights is None:
            raise UsageError(f"the secret {name} is for the gangs of one run, and this launcher was opened for none")
        if name == CHECKPOINT_KEY:
            return checkpoint_key(site, environ, rights.checkpoint_owner)
        if name == STORE_CREDENTIALS:
            return gang_credentials(store, site, environ, rights).encode()
        if name.startswith(SOURCE_SECRET):
            return read_source_secret(name, rights, site, environ).encode()
        variable = name.removeprefix(VARIABLE)
        if repo is not None and variable in TRACKER_SECRETS and variable not in rights.train_secrets:
            if name not in of_trackers:  # a tracker is asked once
                of_trackers[name] = read_program_secret(
                    variable, rights, store=store, repo=repo, site=site, environ=environ
                ).encode()
            return of_trackers[name]
        if name.startswith(VARIABLE):
            return read_secret(name, rights, site, environ)
        raise ConfigError(
            f"a gang asks for the secret {name!r}; wanted {CHECKPOINT_KEY}, {STORE_CREDENTIALS}, {SOURCE_SECRET}NAME or"
            f" {VARIABLE}NAME"
        )

    return read_gang_secret


def checkpoint_key(site: Site, environ: Mapping[str, str], owner: str) -> bytes:
    """Key that signs the checkpoints of `owner`, which `trust.checkpoint_owner` names."""
    from gangline.signing.keys import signing_key

    return signing_key(site, environ).checkpoint_key(owner)


def gang_credentials(store: ObjectStore, site: Site, environ: Mapping[str, str], rights: Rights) -> str:
    """A credential that ends with this run, if the server issues one; else the site's own, which no fork gets.

    It may write below the prefix of the run's gangs, and read inputs and the project's other runs, whose results may be
    reused.
    """
    own = site_paths.store_credential_text(site, environ) or ""
    if not own:
        return own
    scoped = None
    if site.store.scoped:
        listed = [read for read in rights.reads if read not in SHARED_INPUTS]
        run = "/".join(rights.writes.split("/")[:4])
        scoped = scoped_credentials(store, write=rights.writes, read=rights.reads, listed=listed, owner=run)
    require_scoped_credentials(scoped.text if scoped else None, rights)
    return scoped.text if scoped else own


def read_program_secret(
    variable: str, rights: Rights, *, store: ObjectStore, repo: Path, site: Site, environ: Mapping[str, str]
) -> str:
    """One of TRACKER_SECRETS; empty where the tracker does not answer: rank 0 then tracks as the other ranks do.

    Raises:
        IntegrityError: The run with these rights joins no such tracker; a fork's run joins none.
        ConfigError: The token is not there.
    """
    record = read_record(store, "/".join(rights.writes.split("/")[:4]))
    trackers = {} if record is None or rights.is_fork else joined_trackers(record, site)
    kind = "wandb" if variable == WANDB_TOKEN else "mlflow"
    name = next((name for name, table in trackers.items() if table.kind == kind), None)
    if record is None or name is None:
        raise IntegrityError(f"a gang asks for {variable} of a tracker, and its run joins none of that kind")
    table = site.track[name]
    if variable != MLFLOW_RUN:
        return resolve_secret(table.token or "", environ)
    run = tracked_run(record, experiment=table.experiment, price=price_at(site))
    try:
        process = WriterProcess(writer_settings(repo, site, name, environ=environ), table=table, environ=environ)
        try:
            process.open()
            process.begin(run)
            there = process.look(run)
        finally:
            process.end()
    except GanglineError:  # the mirror of the driver says so in the record
        return ""
    return there.id if there is not None else ""
