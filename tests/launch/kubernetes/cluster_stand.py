"""A small cluster in memory: Jobs, a scheduler that binds what fits, and a watch over what placers promise."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from tests.cluster.fake.api import FakeApi
from tests.cluster.fake.controllers import JobController
from tests.launch.kubernetes.gangs import CPU, setting
from tests.launch.kubernetes.paper_cluster import node

from gangline.launch.kubernetes.client.api import ApiUnavailable
from gangline.launch.kubernetes.objects.render import render_as
from gangline.launch.kubernetes.placement.placer import Placer
from gangline.spec.config.site import PodTable
from gangline.spec.gang.podset import Resources

GATE = "gangline/placement"
LEDGER = "/api/v1/namespaces/gangs/configmaps/gangline-ledger"


def _slim(root):
    """A Job without what no placer reads: copies of it are what these tests spend their time on."""
    template = root["spec"].get("template")
    if template:
        pod = template["spec"]
        pod["containers"] = [{key: each[key] for key in ("name", "image", "resources")} for each in pod["containers"]]
        for key in ("volumes", "securityContext", "dnsConfig"):
            pod.pop(key, None)
    return root


class Killed(BaseException):
    """The process of a placer ends here; nothing catches it."""


class Stand:
    """Servers of so many cores, `{name: cores}`; every pod takes one core. Each tenant has a stand, on one server."""

    def __init__(self, cores, *, serve=(), labels=None, namespace="gangs", server=None, **placer):
        self.namespace = namespace
        self.api = FakeApi(namespace, serve=serve, server=server)
        self.jobs = JobController(self.api)
        self.server = self.api.server
        self.now = datetime.now(UTC)
        self.server.now = lambda: self.now
        self.placing = FakeApi(namespace, server=self.server)
        """The placer's own connection: hooks and calls of nobody else."""
        self.placer = Placer(self.placing, holder="one", **placer)
        self.refusing = {}
        self.most_pods = 99
        """Of each gang; the Job controller is slow with the others."""
        self._seen = 0
        for name, number in cores.items():
            self.add(name, number, **(labels or {}).get(name, {}))

    def add(self, name, number, **labels):
        body = node(name, cpu=str(number), labels=labels)
        self.server.write(("nodes", "", name), {**body, "metadata": {**body["metadata"], "uid": name}})

    def taint(self, name, key="node.kubernetes.io/not-ready"):
        """None: it has no taint any more."""
        found = self.api.get(f"/api/v1/nodes/{name}")
        found["spec"]["taints"] = [{"key": key, "effect": "NoSchedule"}] if key else []
        self.server.write(("nodes", "", name), found)

    # gangs

    def submit(self, name="g", num_pods=2, *, kind="job", tolerate=(), **more):
        podset = replace(
            CPU, name=name, run=name, num_nodes=num_pods, procs_per_node=1, secrets=(),
            resources=Resources(cpus=1, memory_bytes=10**6, shm_bytes=0), **more,
        )  # fmt: skip
        pod = PodTable(disk_bytes=1e6, tolerate=tolerate)
        how = setting(podset, namespace=self.namespace, pod=pod, route="gates")
        how = replace(how, now=self.now)
        rendered = render_as(kind, how)
        for path, body in rendered.before:
            self.api.create(path, body)
        self.api.create(rendered.root_path, _slim(rendered.root))
        self.api.patch(f"{rendered.root_path}/{name}", rendered.release)

    def root(self, name="g"):
        return self.api.get(f"/apis/batch/v1/namespaces/{self.namespace}/jobs/{name}")

    def waits(self, name="g"):
        return self.root(name)["metadata"]["annotations"].get("gangline/waits")

    def pods(self, name="g"):
        found = self.api.items(f"/api/v1/namespaces/{self.namespace}/pods", labels=f"gangline/gang={name}")[0]
        return {int(pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"]): pod for pod in found}

    def bound(self, name="g"):
        """Server by node rank."""
        pods = sorted(self.pods(name).items())
        return {rank: pod["spec"]["nodeName"] for rank, pod in pods if pod["spec"].get("nodeName")}

    def reservations(self):
        data = (self.api.get(LEDGER) or {}).get("data") or {}
        return {gang: json.loads(text)["servers"] for gang, text in data.items()}

    # time

    def turn(self, *, seconds=1, placer=None):
        """What a placer did in one step, before the rest of the cluster moved."""
        self.now += timedelta(seconds=seconds)
        try:
            return (placer or self.placer).step(self.now)
        finally:
            self.move()

    def settle(self, turns=6, **more):
        return [each for _ in range(turns) for each in self.turn(**more)]

    def move(self):
        """Controllers, scheduler, kubelets; they rest while nothing changes."""
        if self.server.store.version == self._seen:
            return
        self.jobs.step()
        self._hold_back()
        self.schedule()
        self.jobs.step()
        self._hold_back()
        self._seen = self.server.store.version

    def schedule(self):
        for pod in self._all_pods():
            if "deletionTimestamp" in pod["metadata"]:
                self._gone(pod)
            elif not pod["spec"].get("nodeName") and not pod["spec"].get("schedulingGates"):
                self._schedule(pod)

    def _hold_back(self):
        """Pods that the Job controller has not come to make yet."""
        for pod in self._all_pods():
            rank = int(pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"])
            if rank >= self.most_pods and pod["spec"].get("schedulingGates"):
                self.server.store.remove(("pods", self.namespace, pod["metadata"]["name"]))

    def lose(self, name, rank):
        """Its server evicts a pod: disruption, so that the Job makes another."""
        pod = self.pods(name)[rank]
        pod["status"] |= {
            "phase": "Failed",
            "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "x", "message": "x"}],
        }
        self._write(pod)
        self.jobs.step()
        self.server.store.remove(("pods", self.namespace, pod["metadata"]["name"]))

    def end(self, name):
        for pod in self.pods(name).values():
            pod["status"]["phase"] = "Succeeded"
            self._write(pod)
        self.move()

    def used(self):
        """Cores taken on each server by pods that are bound there."""
        taken = {}
        for pod in self.api.items("/api/v1/pods")[0]:
            if pod["spec"].get("nodeName") and pod["status"]["phase"] not in ("Succeeded", "Failed"):
                taken[pod["spec"]["nodeName"]] = taken.get(pod["spec"]["nodeName"], 0) + 1
        return taken

    def cores(self):
        return {
            each["metadata"]["name"]: int(each["status"]["allocatable"]["cpu"])
            for each in self.api.items("/api/v1/nodes")[0]
        }

    def _schedule(self, pod):
        server = pod["spec"]["nodeSelector"]["kubernetes.io/hostname"]
        why = self.refusing.get(server)
        if why is None and self.used().get(server, 0) >= self.cores().get(server, 0):
            why = "Insufficient cpu"
        if why is None:
            pod["spec"]["nodeName"], pod["status"]["phase"] = server, "Running"
        condition = {
            "type": "PodScheduled",
            "status": "False" if why else "True",
            "message": why or "",
            "lastTransitionTime": self.now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        pod["status"]["conditions"] = [condition]
        self._write(pod)

    def _gone(self, pod):
        pod["metadata"]["finalizers"] = []
        pod["metadata"]["deletionGracePeriodSeconds"] = 0
        self._write(pod)

    def _all_pods(self):
        return self.api.items(f"/api/v1/namespaces/{self.namespace}/pods")[0]

    def _write(self, pod):
        found = self.server.store.get(("pods", self.namespace, pod["metadata"]["name"]))
        if found is not None:
            self.server.write(("pods", self.namespace, pod["metadata"]["name"]), {**found, **pod})


def watch_over(stand, api=None):
    """Check at every write of the placer, or of `api`: no server given twice, no gate opened before all pods exist."""

    def hook(request, proceed):
        if request.method == "PATCH" and "/pods/" in request.path:
            pod = stand.api.get(request.path)
            assert pod is None or _is_whole(stand, pod["metadata"]["labels"]["gangline/gang"]), "a gate of a part"
        answer = proceed()
        if request.method != "GET":
            demand_no_server_twice(stand)
        return answer

    (api or stand.placing).hooks.append(hook)


def demand_no_server_twice(stand):
    """By server, what gangs hold or are promised fits; the larger of the two counts of each gang."""
    store = stand.server.store
    ledger = store.get(("configmaps", "gangs", "gangline-ledger")) or {}
    taken = {}
    for gang, text in (ledger.get("data") or {}).items():
        for server in json.loads(text)["servers"]:
            taken.setdefault(server, {}).setdefault(gang, [0, 0])[0] += 1
    for pod in store.all_of(stand.server.kind("pods"), ""):
        server, gang = pod["spec"].get("nodeName"), pod["metadata"]["labels"]["gangline/gang"]
        if pod["metadata"]["namespace"] != "gangs":
            gang = f"{pod['metadata']['namespace']}.{gang}"
        if server and pod["status"]["phase"] not in ("Succeeded", "Failed"):
            taken.setdefault(server, {}).setdefault(gang, [0, 0])[1] += 1
    for server, gangs in taken.items():
        found = store.get(("nodes", "", server))
        room = int(found["status"]["allocatable"]["cpu"]) if found else 0
        held = sum(max(counts) for counts in gangs.values())
        assert found is None or held <= room, f"{server} has {room} cores, {held} are given away: {gangs}"


def _is_whole(stand, gang):
    job = stand.root(gang)
    return len(stand.pods(gang)) >= job["spec"]["completions"]


def killing(at, when):
    """A hook that ends its placer before or after its `at`-th write, or loses that write's answer; counts writes."""
    seen = []

    def hook(request, proceed):
        if request.method == "GET":
            return proceed()
        seen.append(f"{request.method} {request.path}")
        if len(seen) != at:
            return proceed()
        if when == "before":
            raise Killed
        answer = proceed()
        if when == "after":
            raise Killed
        if when == "lost":
            raise ApiUnavailable("the answer was lost")
        return answer

    hook.seen = seen
    return hook
