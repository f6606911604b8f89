"""How gangs under Trainer end: all that makes pods goes with the root, nothing of a later gang; its Job says why."""

import pytest
from tests.cluster.fake.api import FakeApi
from tests.cluster.fake.garbage import collect_garbage
from tests.launch.kubernetes.gangs import CPU, setting

from gangline.launch.kubernetes.cluster.facts import ClusterFacts
from gangline.launch.kubernetes.lifecycle.cancel import PodOwners, refuse_gang, sweep_gangs
from gangline.launch.kubernetes.lifecycle.final_state import close_ended_gang
from gangline.launch.kubernetes.objects.render import owned, owner_patch, render_as
from gangline.launch.kubernetes.state.roots import JOB, JOBSET, Root

NAME = CPU.name


class Cluster:
    """A gang under Trainer, with the JobSet and the Job that controllers would make, and a collector of garbage."""

    def __init__(self) -> None:
        self.api = FakeApi(serve=("trainer", "jobset"))
        self.deletions = []
        self.root = self._made()
        self.api.hooks.append(self._tell)

    def left(self):
        api = self.api.server
        kinds = ("trainjobs.trainer.kubeflow.org", "jobsets.jobset.x-k8s.io", "jobs.batch")
        return [kind for kind in kinds for _ in api.store.all_of(api.kind(kind), self.api.namespace)]

    def _made(self) -> Root:
        asked = setting(namespace=self.api.namespace)
        gang = render_as("trainjob", asked)
        for path, body in gang.before:
            self.api.create(path, body)
        root = self.api.create(gang.root_path, gang.root)
        self.api.patch(f"{gang.before[0][0]}/{NAME}", owner_patch(root))
        below = render_as("jobset", asked)
        jobset = self.api.create(below.root_path, owned(below.root, root))
        job = render_as("job", asked).root
        job["metadata"]["name"] = f"{NAME}-node-0"
        self.api.create(JOB.path(self.api.namespace), owned(job, jobset))
        return Root(f"{gang.root_path}/{NAME}", root)

    def _tell(self, request, proceed):
        answer = proceed()
        if request.verb == "delete" and "/trainjobs/" in request.path:
            self.deletions.append(request.body["propagationPolicy"])
        if self.deletions:
            collect_garbage(self.api.server)  # one link of the chain, later than the call
        return answer


@pytest.fixture
def cluster():
    return Cluster()


def test_trainjob_goes_at_once_as_its_webhook_lets_no_marked_one_go(cluster):
    refuse_gang(cluster.api, cluster.root, exit_code=10, reason="no")
    assert cluster.deletions == ["Background"]


def test_trainjob_that_is_swept_goes_at_once_too(cluster):
    facts = ClusterFacts(trainer="podSpecOverrides", served=("jobset.x-k8s.io/v1alpha2/jobsets",))
    sweep_gangs(cluster.api, facts=facts, now=setting().now, life=lambda _: "ended")
    assert cluster.deletions == ["Background"]


def test_nothing_that_makes_pods_is_left_when_the_gang_has_ended(cluster):
    refuse_gang(cluster.api, cluster.root, exit_code=10, reason="no")
    assert cluster.left() == []


def test_gang_whose_time_was_over_says_so_though_its_root_knows_only_of_a_failed_job(cluster):
    api, path = cluster.api, cluster.root.lineage[-1]
    late = {
        "type": "Failed",
        "status": "True",
        "reason": "DeadlineExceeded",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    api.patch(f"{path}/status", {"status": {"conditions": [late]}})
    failed = {"type": "Failed", "status": "True", "reason": "FailedJobs", "message": "jobset failed"}
    root = api.patch(f"{cluster.root.path}/status", {"status": {"conditions": [failed]}})
    end = close_ended_gang(api, Root(cluster.root.path, root)).end
    assert (end.exit_code, end.retry) == (30, "never")
    assert "its time" in end.reason


def test_what_a_later_gang_of_that_name_made_holds_no_one_up(cluster):
    makers = PodOwners(cluster.api, cluster.root)
    assert len(makers.remaining()) == 3
    for path in cluster.root.lineage:
        cluster.api.delete(path)
    later = render_as("jobset", setting(namespace=cluster.api.namespace))
    cluster.api.create(JOBSET.path(cluster.api.namespace), later.root)
    assert makers.remaining() == []
