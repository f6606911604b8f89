"""`JobController`: Indexed Jobs become pods and end with them, as the controller of Kubernetes 1.34 was seen to do it.

Covers what a gang asks for: one try an index, a failure policy by exit code and condition, replacement only of pods
that ended, suspension, deadline, time to live. `step` also collects garbage.
"""

from copy import deepcopy
from datetime import datetime, timedelta
from typing import Any

from tests.cluster.fake.garbage import collect_garbage
from tests.cluster.fake.server import Asked, FakeServer
from tests.cluster.fake.writes import born, stamp

Object = dict[str, Any]
TRACKING = "batch.kubernetes.io/job-tracking"
INDEX = "batch.kubernetes.io/job-completion-index"
_ROUNDS = 20


class JobController:
    def __init__(self, server: "FakeServer | Any") -> None:
        """Args: server: A `FakeServer`, or a `FakeApi` over one."""
        self.server: FakeServer = getattr(server, "server", server)

    def step(self) -> int:
        """Until nothing moves; returns how many rounds moved something. Nobody else writes meanwhile."""
        with self.server.store.changed:
            return self._settle()

    def _settle(self) -> int:
        for rounds in range(_ROUNDS):
            before = self.server.store.version
            for job in self.server.store.all_of(self.server.kind("jobs.batch"), ""):
                _Round(self.server, job).act()
            collect_garbage(self.server)
            if self.server.store.version == before:
                return rounds
        raise AssertionError(f"jobs do not settle in {_ROUNDS} rounds")


class _Round:
    """One look at one Job."""

    def __init__(self, server: FakeServer, job: Object) -> None:
        self.server = server
        self.job = job
        self.spec = job["spec"]
        self.status = job.setdefault("status", {})
        self.namespace = job["metadata"]["namespace"]
        self.name = job["metadata"]["name"]
        self.pods = [
            pod
            for pod in server.store.all_of(server.kind("pods"), self.namespace)
            if any(each["uid"] == job["metadata"]["uid"] for each in pod["metadata"].get("ownerReferences") or ())
        ]

    def act(self) -> None:
        if "deletionTimestamp" in self.job["metadata"]:
            self._release_pods()
            return
        if self._has("Complete") or self._has("Failed"):
            self._release_pods()
            self._expire()
            return
        if self._has("FailureTarget"):
            self._fail()
        elif (reason := self._failure()) is not None:  # of a suspended Job, too: its pods end by SIGTERM
            self._condition("FailureTarget", "True", *reason)
            self._fail()
        elif self.spec.get("suspend"):
            self._suspend()
        else:
            self._resume()
            self._go_on()
        self._count()
        self._save()

    def _suspend(self) -> None:
        for pod in self._alive():
            self._delete(pod)
        self._release_pods(ended_only=True)
        if not self._has("Suspended"):
            self._condition("Suspended", "True", "JobSuspended", "Job suspended")

    def _resume(self) -> None:
        """The start counts anew, but for a Job whose old start is past the deadline: that one has failed by now."""
        if self._has("Suspended"):
            self._condition("Suspended", "False", "JobResumed", "Job resumed")
            self.status["startTime"] = stamp(self.server.now())
        self.status.setdefault("startTime", stamp(self.server.now()))

    def _go_on(self) -> None:
        done = {self._index(pod) for pod in self.pods if pod["status"]["phase"] == "Succeeded"}
        if len(done) >= self.spec.get("completions", 1):
            self._condition(
                "SuccessCriteriaMet", "True", "CompletionsReached", "Reached expected number of succeeded pods"
            )
            self._condition("Complete", "True", "CompletionsReached", "Reached expected number of succeeded pods")
            self.status["completionTime"] = stamp(self.server.now())
            return
        self._release_pods(ended_only=True)
        held = {self._index(pod) for pod in self.pods if not self._is_over(pod)}
        for index in range(self.spec.get("completions", 1)):
            if index not in done | held:
                self._create(index)

    def _failure(self) -> tuple[str, str] | None:
        """Reason and message of the first thing that fails the Job."""
        limit = None if self.spec.get("suspend") else self.spec.get("activeDeadlineSeconds")
        started = self.status.get("startTime")
        if limit is not None and started and self.server.now() >= _time(started) + timedelta(seconds=limit):
            return "DeadlineExceeded", "Job was active longer than specified deadline"
        failed = [pod for pod in self.pods if pod["status"]["phase"] == "Failed"]
        counted = 0
        for pod in failed:
            action, rule = self._action(pod)
            if action == "FailJob":
                container, code = _ended(pod)
                return "PodFailurePolicy", (
                    f"Container {container} for pod {self.namespace}/{pod['metadata']['name']} failed with exit code "
                    f"{code} matching FailJob rule at index {rule}"
                )
            counted += action == "Count"
        if counted > self.spec.get("backoffLimit", 6):
            return "BackoffLimitExceeded", "Job has reached the specified backoff limit"
        return None

    def _action(self, pod: Object) -> tuple[str, int]:
        for index, rule in enumerate((self.spec.get("podFailurePolicy") or {}).get("rules", ())):
            if _matches(rule, pod):
                return rule["action"], index
        return "Count", -1

    def _fail(self) -> None:
        for pod in self._alive():
            self._delete(pod)
        self._release_pods()
        if not [pod for pod in self._mine_now() if not self._is_over(pod)]:
            target = next(each for each in self.status["conditions"] if each["type"] == "FailureTarget")
            self._condition("Failed", "True", target["reason"], target["message"])

    def _create(self, index: int) -> None:
        template = deepcopy(self.spec["template"])
        labels = {
            "batch.kubernetes.io/controller-uid": self.job["metadata"]["uid"],
            "batch.kubernetes.io/job-name": self.name,
            "controller-uid": self.job["metadata"]["uid"],
            "job-name": self.name,
            INDEX: str(index),
        }
        metadata = template.get("metadata") or {}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "generateName": f"{self.name}-{index}-",
                "labels": {**(metadata.get("labels") or {}), **labels},
                "annotations": {**(metadata.get("annotations") or {}), INDEX: str(index)},
                "finalizers": [TRACKING],
                "ownerReferences": [
                    {
                        "apiVersion": "batch/v1",
                        "kind": "Job",
                        "name": self.name,
                        "uid": self.job["metadata"]["uid"],
                        "controller": True,
                        "blockOwnerDeletion": True,
                    }
                ],
            },
            "spec": {**template["spec"], "hostname": f"{self.name}-{index}"},
        }
        new = born(self.server.kind("pods"), pod, namespace=self.namespace, now=self.server.now())
        self.server.write(("pods", self.namespace, new["metadata"]["name"]), new)

    def _count(self) -> None:
        pods = self._mine_now()
        live = [pod for pod in pods if not self._is_over(pod) and "deletionTimestamp" not in pod["metadata"]]
        done = sorted({self._index(pod) for pod in pods if pod["status"]["phase"] == "Succeeded"})
        counts = {
            "active": len(live),
            "ready": sum(_is_ready(pod) for pod in live),
            "terminating": sum("deletionTimestamp" in pod["metadata"] for pod in pods if not self._is_over(pod)),
            "succeeded": len(done),
            "failed": max(self.status.get("failed", 0), sum(pod["status"]["phase"] == "Failed" for pod in pods)),
        }
        for name, value in counts.items():
            if value or name in ("ready", "terminating"):
                self.status[name] = value
            else:
                self.status.pop(name, None)
        if done:
            self.status["completedIndexes"] = ",".join(map(str, done))

    def _expire(self) -> None:
        limit = self.spec.get("ttlSecondsAfterFinished")
        ended = max(_time(each["lastTransitionTime"]) for each in self.status["conditions"])
        if limit is not None and self.server.now() >= ended + timedelta(seconds=limit):
            path = f"/apis/batch/v1/namespaces/{self.namespace}/jobs/{self.name}"
            self.server.answer(Asked(method="DELETE", path=path))

    def _release_pods(self, *, ended_only: bool = False) -> None:
        """Ended pods are counted, so the tracking finalizer lets them go; those on their way out where the Job goes, or
        where they never had a server."""
        for pod in self._mine_now():
            held = pod["metadata"].get("finalizers") or []
            is_going = "deletionTimestamp" in pod["metadata"] and not (ended_only and pod["spec"].get("nodeName"))
            if TRACKING in held and (self._is_over(pod) or is_going):
                pod["metadata"]["finalizers"] = [each for each in held if each != TRACKING]
                self.server.write(("pods", self.namespace, pod["metadata"]["name"]), pod)

    def _mine_now(self) -> list[Object]:
        found = self.server.store.all_of(self.server.kind("pods"), self.namespace)
        uid = self.job["metadata"]["uid"]
        return [pod for pod in found if any(o["uid"] == uid for o in pod["metadata"].get("ownerReferences") or ())]

    def _alive(self) -> list[Object]:
        return [
            pod for pod in self._mine_now() if not self._is_over(pod) and "deletionTimestamp" not in pod["metadata"]
        ]

    def _delete(self, pod: Object) -> None:
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}"
        self.server.answer(Asked(method="DELETE", path=path))

    def _index(self, pod: Object) -> int:
        return int(pod["metadata"]["annotations"][INDEX])

    def _is_over(self, pod: Object) -> bool:
        return pod["status"].get("phase") in ("Succeeded", "Failed")

    def _has(self, kind: str) -> bool:
        return any(each["type"] == kind and each["status"] == "True" for each in self.status.get("conditions", ()))

    def _condition(self, kind: str, status: str, reason: str, message: str) -> None:
        conditions = self.status.setdefault("conditions", [])
        conditions[:] = [each for each in conditions if each["type"] != kind]
        now = stamp(self.server.now())
        conditions.append(
            {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": message,
                "lastProbeTime": now,
                "lastTransitionTime": now,
            }
        )

    def _save(self) -> None:
        key = ("jobs.batch", self.namespace, self.name)
        now = self.server.store.get(key)
        if now is not None:
            self.server.write(key, {**now, "status": self.status})


def _matches(rule: Object, pod: Object) -> bool:
    if "onPodConditions" in rule:
        have = {(each["type"], each["status"]) for each in pod["status"].get("conditions", ())}
        return any((each["type"], each.get("status", "True")) in have for each in rule["onPodConditions"])
    codes = rule["onExitCodes"]
    _, code = _ended(pod)
    if code == 0:
        return False
    return (code in codes["values"]) is (codes["operator"] == "In")


def _ended(pod: Object) -> tuple[str, int]:
    for each in pod["status"].get("containerStatuses", ()):
        if "terminated" in each["state"]:
            return each["name"], each["state"]["terminated"]["exitCode"]
    return "", 0


def _is_ready(pod: Object) -> bool:
    return any(each["type"] == "Ready" and each["status"] == "True" for each in pod["status"].get("conditions", ()))


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))
