"""JobSet in the test cluster: its own manifests, webhooks and controller, from its Go module."""

import json

from tests.cluster.images import recipes
from tests.cluster.operators import module
from tests.cluster.rig.kubectl import Kubectl
from tests.cluster.rig.trouble import Trouble
from tests.cluster.rig.wait import await_true

NAMESPACE = "jobset-system"
_MODULE = "sigs.k8s.io/jobset"
_PUBLISHED = "us-central1-docker.pkg.dev/k8s-staging-images/jobset/jobset"


def install(kubectl: Kubectl) -> None:
    """Returns when the webhooks answer; at once where they do."""
    if _webhook_answers(kubectl):
        return
    image = recipes.jobset()
    container = "/spec/template/spec/containers/0"
    kustomization = {
        "resources": ["config/default"],
        "images": [module.replaced_image(_PUBLISHED, image)],
        "patches": [
            module.patched_deployment(
                "jobset-controller-manager",
                {"op": "remove", "path": f"{container}/command"},
                {"op": "add", "path": f"{container}/args/-", "value": "--leader-elect=false"},  # it is alone
            )
        ],
    }
    objects = module.kustomized(kubectl, module.manifests(_MODULE), ("config",), kustomization)
    module.install(kubectl, image, objects, deployment="jobset-controller-manager", namespace=NAMESPACE)
    await_true("JobSet's webhooks", lambda: _webhook_answers(kubectl), seconds=60)


def _webhook_answers(kubectl: Kubectl) -> bool:
    """The success policy of a JobSet that has none is theirs."""
    pod = {"restartPolicy": "Never", "containers": [{"name": "node", "image": "none"}]}
    job = {"name": "node", "template": {"spec": {"template": {"spec": pod}}}}
    probe = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "probe", "namespace": "default"},
        "spec": {"suspend": True, "replicatedJobs": [job]},
    }
    try:
        reported = kubectl.run("create", "--dry-run=server", "-o", "json", "-f", "-", feed=json.dumps(probe))
    except Trouble:
        return False
    return "successPolicy" in json.loads(reported)["spec"]
