"""`PodRunner`: one module, one pod, one answer. What the pod is given lies in the store for as long as it runs.

The driver needs no right beyond those for gangs. The pod gets a URL that reads one object for a while: no credential
of the site, of the run or of a person is in it. Whatever happens, Job, Secret, policy and bundle go; of a driver that
dies the Job ends by its deadline and goes by its time to live, and a sweep finds the rest by label and prefix.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from secrets import token_hex

from gangline.errors import ConfigError, GanglineError
from gangline.launch.kubernetes.api.facts import Facts, read_facts
from gangline.launch.kubernetes.api.protocol import Api
from gangline.launch.kubernetes.objects.render import Rendered
from gangline.launch.kubernetes.objects.setting import Setting
from gangline.launch.kubernetes.once.bundle import put_bundle, size_bytes
from gangline.launch.kubernetes.once.follow import await_end, read_done
from gangline.launch.kubernetes.once.objects import BUNDLE, COMMAND, render_once
from gangline.launch.kubernetes.roots import JOB, deletion_of
from gangline.launch.kubernetes.route import choose_route
from gangline.launch.kubernetes.stop import Leaving
from gangline.launch.kubernetes.submit import Submitter
from gangline.launch.sandbox.runner import Done, Job
from gangline.spec.once import BUNDLE_SECONDS, BUNDLES, Bundle
from gangline.spec.podset import PodSet, Resources
from gangline.spec.site import LaunchTable, PodTable
from gangline.storage.protocol import ObjectStore


@dataclass(frozen=True, kw_only=True, slots=True)
class Whose:
    """The run that model code runs for, and what its pods are made from."""

    run: str
    project: str
    commit: str
    image: str | None
    """By digest."""


@dataclass(frozen=True, kw_only=True)
class PodRunner:
    """Implements `Runner` with a pod; nothing of the cluster is asked before the first job."""

    connect: Callable[[], Api]
    store: ObjectStore
    """As this driver reaches it."""
    pods_store: Callable[[], ObjectStore]
    """The same one as pods reach it; raises ConfigError where they do not."""
    whose: Whose
    launch: LaunchTable
    pod: PodTable

    def run(self, job: Job) -> Done:
        """As the protocol says, and raises:

        ConfigError: There is no image, no store that pods reach, or the cluster refuses such a pod.
        CapacityError: No server has room for it.
        """
        if self.whose.image is None:
            raise ConfigError(
                "model code runs in a pod here, and pods need an image; set registry.base in site.toml (gangline"
                " doctor --cluster tells more), or install bubblewrap where gangline runs: then it runs there"
            )
        name = f"{self.whose.run}-{token_hex(3)[:5]}"
        key, pods_store, api = f"{BUNDLES}{name}.tar", self.pods_store(), self.connect()
        facts = read_facts(api)
        try:
            sha256 = put_bundle(self.store, key, job)
            bundle = Bundle(url=pods_store.presign(key, BUNDLE_SECONDS), sha256=sha256)
            return self._run(api, facts, self._podset(name, job, pods_store.url), bundle, job)
        finally:
            with suppress(GanglineError):  # a sweep deletes what is left
                self.store.delete(key)

    def _run(self, api: Api, facts: Facts, podset: PodSet, bundle: Bundle, job: Job) -> Done:
        def render(podset: PodSet, now: datetime) -> Rendered:
            kueue = choose_route(podset, self.launch, facts) == "kueue"
            pod = replace(self.pod, disk_bytes=self.pod.disk_bytes + 2 * size_bytes(job))  # the bundle, and its files
            return render_once(
                Setting(
                    podset=podset, namespace=api.namespace, pod=pod, launch=self.launch, facts=facts,
                    route="kueue" if kueue else "none", now=now,
                )
            )  # fmt: skip

        try:
            Submitter(api=api, kinds=(JOB,), render=render, secrets=lambda _: bundle.to_json()).submit(podset)
            pod = await_end(api, podset, facts=facts, seconds=job.seconds)
            return read_done(api, pod, memory_bytes=podset.resources.memory_bytes or 0)
        finally:
            with suppress(GanglineError):  # its Job ends by itself, and goes then
                path = JOB.path(api.namespace, podset.name)
                api.delete(path, propagation=deletion_of(path))
                Leaving(api, podset.name, save=False).wait()

    def _podset(self, name: str, job: Job, store: str) -> PodSet:
        """What one rank gets on its host, and memory for the files twice: weights are opened, and a model is built."""
        memory = round(self.pod.memory_bytes) + 2 * size_bytes(job)
        return PodSet(
            name=name, run=self.whose.run, project=self.whose.project, commit=self.whose.commit, procs_per_node=1,
            image=self.whose.image, code="", plan="", store=store, command=COMMAND, secrets=(BUNDLE,),
            resources=Resources(cpus=self.pod.cpus, memory_bytes=memory), queue=self.launch.queue,
            deadline_seconds=job.seconds,
        )  # fmt: skip
