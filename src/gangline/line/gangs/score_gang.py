"""The gang of role score: ranks of a version's own code, which reach the store as those of a training do.

It has no run and no record. Its name follows from what is asked, in the form of a run id, so the same question finds
the gang that answers it already, wherever ranks run, and what an earlier one left. Its driver deletes it.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gangline.data.versions import dataset_use
from gangline.errors import CancelledError, GanglineError, IntegrityError, error_for
from gangline.launch.protocol import Launcher
from gangline.line.gangs import launchers
from gangline.line.gangs.follow import RENEW_SECONDS
from gangline.line.gangs.gang_secrets import shard_access, shard_variables, source_secrets
from gangline.line.gangs.podsets import commits_python, on_cluster
from gangline.line.request.targets import launcher_of, parse_target
from gangline.line.request.trust import Rights
from gangline.spec import identity
from gangline.spec.config.site import Site
from gangline.spec.data_source import DataFile, DataSource
from gangline.spec.dataset import Dataset
from gangline.spec.gang.driver_orders import MODEL_FOLDER, ORDER_FILE, ScoreOrder
from gangline.spec.gang.podset import PodSet, Resources
from gangline.spec.gang.status import GangEnd
from gangline.spec.mesh import Mesh
from gangline.spec.plan import CheckpointPolicy, Device, Plan, ProgramSpec
from gangline.spec.record import Record, gang_prefix, run_prefix
from gangline.storage.objects.blobs import PREFIX, put_blob
from gangline.storage.objects.protocol import ObjectStore
from gangline.storage.s3.run_credentials import SHARED_INPUTS, revoke_credentials

Notify = Callable[[str], object]
"""Called with the name of each output that a rank has made."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoreJob:
    """What ranks load, and how many there are."""

    name: str
    """Id of the gang's run, which has no record."""
    record: Record
    """Run of the version."""
    folder: Path
    """Verified."""
    config: Mapping[str, Any]
    """Its `config.json`."""
    order: ScoreOrder
    ranks: int = 1
    nodes: int = 1
    device: Device = "cpu"

    @property
    def prefix(self) -> str:
        """Where its ranks write."""
        return gang_prefix(run_prefix(self.record.run.project, self.record.commit.sha, self.name))


@dataclass(frozen=True, kw_only=True)
class GangPlace:
    """Where gangs run."""

    store: ObjectStore
    repo: Path
    site: Site
    environ: Mapping[str, str]
    say: Callable[[str], object]
    """Receives why a gang waits."""


def run_score_gang(job: ScoreJob, dataset: Dataset, place: GangPlace, notify: Notify) -> None:
    """Start the gang, or join the one that runs, and follow it to its end.

    Raises:
        GanglineError: Of the exit code of the gang; what it has made stays.
    """
    podset = _podset(job, _plan(job, dataset, place.store), place)
    owner = f"{podset.project}/{podset.run}"  # of a key that opens no checkpoint of the project
    rights = Rights(writes=job.prefix, checkpoint_owner=owner, reads=SHARED_INPUTS, is_fork=False)
    launcher = launchers.open_launcher(
        place.repo, site=place.site, environ=place.environ, store=place.store, rights=rights, note=place.say
    )
    try:
        adopted = launcher.submit(podset).adopted
    except IntegrityError:  # it was asked for other shards, or has other ranks: what it made stays
        _delete(launcher, podset, place.store)
        adopted = launcher.submit(podset).adopted
    end = _followed(launcher, podset, place, notify)
    if adopted and end.exit_code:  # it was started by a call that ended before it did
        launcher.submit(podset)
        end = _followed(launcher, podset, place, notify)
    if end.exit_code:
        raise error_for(end.exit_code)(end.reason or f"the gang {podset.name} ended with {end.exit_code}")


def _plan(job: ScoreJob, dataset: Dataset, store: ObjectStore) -> Plan:
    record, infer = job.record, job.config.get("infer") or {}
    files = [(f"{MODEL_FOLDER}/{path.relative_to(job.folder).as_posix()}", path.read_bytes())
             for path in sorted(job.folder.rglob("*")) if path.is_file()]  # fmt: skip
    files.append((ORDER_FILE, job.order.to_json()))
    return Plan(
        run=job.name, project=record.run.project, name=f"score-{job.ranks}", role="score", run_prefix=job.prefix,
        program=ProgramSpec(task=job.config.get("task") or infer.get("handler"), path=tuple(infer.get("path", ()))),
        strategy="ddp" if job.ranks > 1 else "none", mesh=Mesh(dp_replicate=job.ranks), device=job.device,
        data=DataSource(
            files=tuple(DataFile(path=path, key=put_blob(store, data), size_bytes=len(data)) for path, data in files),
            sets=(dataset_use(dataset),),
        ),
        steps=1, global_batch=job.ranks, micro_batch=1, checkpoint=CheckpointPolicy(every=1, peer_copies=0),
    )  # fmt: skip


def _podset(job: ScoreJob, plan: Plan, place: GangPlace) -> PodSet:
    site, traits = place.site, launcher_of(place.site.launch.target)
    record = replace(job.record, run=replace(job.record.run, target=parse_target(site.launch.target)[0]))
    shards, code = shard_access(plan, record, site), str(job.config["code"])
    per_node = plan.world_size // job.nodes
    podset = PodSet(
        name=identity.gang_name(plan.run, "score"), run=plan.run, project=plan.project, commit=record.commit.sha,
        role="score", num_nodes=job.nodes, procs_per_node=per_node, image=record.inputs.image,
        code=code if code.startswith(PREFIX) else PREFIX + code, plan=put_blob(place.store, plan.to_json()),
        store=place.store.url, env=shard_variables(shards),
        resources=Resources(gpus=per_node if plan.device == "cuda" else 0), queue=site.launch.queue,
        priority=site.launch.priority, pool=site.launch.pool, deadline_seconds=site.limits.run_seconds,
        secrets=(
            launchers.CHECKPOINT_KEY, *((launchers.STORE_CREDENTIALS,) if site.store.credentials else ()),
            *source_secrets(shards),
        ),
    )  # fmt: skip
    return on_cluster(podset, site) if traits.has_pods else replace(podset, python=commits_python(record))


def _followed(launcher: Launcher, podset: PodSet, place: GangPlace, notify: Notify) -> GangEnd:
    """Its end, after which it is deleted; Ctrl-C stops a gang of this machine, and leaves one of a cluster."""
    try:
        with _renewed(launcher, podset.name):
            for event in launcher.follow(podset.name):
                if event.kind == "waiting":
                    place.say(f"waits: {event.text}")
                elif event.data.get("event") == "scored":
                    notify(str(event.data.get("shard")))
            end = launcher.collect(podset.name)
    except KeyboardInterrupt:
        if not launcher_of(place.site.launch.target).is_here:
            raise CancelledError(f"gang {podset.name} runs on; the same command follows it") from None
        launcher.cancel(podset.name, reason="interrupted at the terminal", save=False)
        _delete(launcher, podset, place.store)
        raise CancelledError("stopped; the same command goes on with what is missing") from None
    _delete(launcher, podset, place.store)
    return end


@contextmanager
def _renewed(launcher: Launcher, name: str) -> Iterator[None]:
    """Credentials of the gang are renewed meanwhile."""
    over = threading.Event()

    def renew() -> None:
        while not over.wait(RENEW_SECONDS):
            with suppress(GanglineError):
                launcher.renew(name)

    thread = threading.Thread(target=renew, name="renew", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _delete(launcher: Launcher, podset: PodSet, store: ObjectStore) -> None:
    """Delete what is left of the gang, its credential too, so that the same question may start another."""
    launcher.sweep(now=datetime.now(UTC), life=lambda each: "ended" if each == podset.run else "followed")
    revoke_credentials(store, run_prefix(podset.project, podset.commit, podset.run))
