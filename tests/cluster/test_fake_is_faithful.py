"""The fake API server answers as the real one does, and each step of the script answers what consumers count on."""

import pytest
from tests.cluster import lifecycle, script
from tests.cluster.fake.api import FakeApi
from tests.cluster.fake.controllers import JobController

from gangline.launch.kubernetes.client.client import connect


def fake_answers():
    api = FakeApi()
    api.idle.append(JobController(api).step)
    return script.run(api)


@pytest.mark.cluster
def test_fake_and_real_server_answer_alike(cluster, namespace):
    real = connect({"KUBECONFIG": str(cluster.kubeconfig)}, namespace=namespace)
    assert dict(fake_answers()) == dict(script.run(real))


def test_script_meets_every_answer_that_callers_act_on():
    answers = dict(fake_answers())
    classes = {answer[0] for answer in answers.values() if isinstance(answer, tuple)}
    assert classes == {"ApiConflict", "ApiRejected"}
    assert answers["what it owned goes"] is True
    assert answers["watch by label"] == [("added", "w"), ("modified", "w"), ("deleted", "w")]
    assert answers["it was for show"] is None


def fake_life():
    api = FakeApi()
    return lifecycle.run(api, move=JobController(api).step)


@pytest.mark.cluster
def test_job_lives_on_the_fake_as_on_a_real_cluster(cluster, namespace):
    real = connect({"KUBECONFIG": str(cluster.kubeconfig)}, namespace=namespace)
    assert fake_life() == lifecycle.run(real)


def test_suspended_job_has_no_pods_and_a_late_one_fails_with_its_reason():
    seen = fake_life()
    assert seen["suspended again"]["active"] is None
    assert "cannot be removed for unsuspended job" in seen["start of what runs"]
    assert (seen["suspended again"]["started"], seen["start forgotten"]["started"]) == (True, False)
    assert seen["late"]["conditions"]["Failed"] == ("True", "DeadlineExceeded")
    assert [pod["name"] for pod in seen["pods"]] == ["life-0", "life-1"]
