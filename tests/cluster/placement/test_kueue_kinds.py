"""Workloads of the unit tests, written into a real API server with the kinds of Kueue: no field of them is lost.

Those in v1beta1 need Kueue itself, which converts them into the version that is stored.
"""

import pytest
from tests.launch.kubernetes.placement.recorded import RECORDS, RecordedGang

from gangline.launch.kubernetes.client.client import connect
from gangline.launch.kubernetes.placement.kueue_admission import assigned_servers

pytestmark = pytest.mark.cluster
V1BETA1 = "admitted-v1beta1"
TEMPLATE = {"spec": {"containers": [{"name": "train", "image": "train"}]}}


@pytest.fixture(scope="module")
def api(cluster):
    with cluster.lend_kinds_of_kueue():
        namespace = cluster.namespace("kueue-kinds")
        yield connect({"KUBECONFIG": str(cluster.kubeconfig)}, namespace=namespace)
        cluster.delete(namespace)


@pytest.mark.parametrize("name", sorted(path.stem for path in RECORDS.glob("*.json") if path.stem != V1BETA1))
def test_workload_has_the_form_that_kueue_serves(api, name):
    workload = RecordedGang(name).workload
    podsets = [{"template": TEMPLATE} | each for each in workload["spec"]["podSets"]]
    path = f"/apis/{workload['apiVersion']}/namespaces/{api.namespace}/workloads"
    body = {**workload, "metadata": {"name": name}, "spec": workload["spec"] | {"podSets": podsets}}
    api.create(path, body)
    stored = api.patch(f"{path}/{name}/status", {"status": workload["status"]})
    assert stored["status"] == workload["status"]
    assert assigned_servers(stored) == assigned_servers(workload)
