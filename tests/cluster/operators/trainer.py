"""Kubeflow Trainer in the test cluster: its own manifests, webhooks and controller, from its Go module.

It hands TrainJobs on as JobSets, so JobSet is there before it."""

import json

from tests.cluster.images import recipes
from tests.cluster.operators import jobset, module
from tests.cluster.rig.kubectl import Kubectl
from tests.cluster.rig.trouble import Trouble
from tests.cluster.rig.wait import await_true

NAMESPACE = "kubeflow-system"
_MODULE = "github.com/kubeflow/trainer/v2"
_PUBLISHED = "ghcr.io/kubeflow/trainer/trainer-controller-manager"
_MANAGER = "kubeflow-trainer-controller-manager"
_PARTS = ("crds", "manager", "rbac", "webhook")


def install(kubectl: Kubectl) -> None:
    """Returns when the webhooks answer; at once where they do."""
    jobset.install(kubectl)
    if _webhook_answers(kubectl):
        return
    image = recipes.trainer()
    kustomization = {  # the module's own overlay without its JobSet
        "namespace": NAMESPACE,
        "resources": list(_PARTS),
        "images": [module.replaced_image(_PUBLISHED, image)],
        "patches": [module.patched_deployment(_MANAGER)],
        "secretGenerator": [{"name": "kubeflow-trainer-webhook-cert", "options": {"disableNameSuffixHash": True}}],
    }
    base = module.manifests(_MODULE) / "manifests" / "base"
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    objects = [space, *module.kustomized(kubectl, base, _PARTS, kustomization)]
    module.install(kubectl, image, objects, deployment=_MANAGER, namespace=NAMESPACE)
    await_true("Trainer's webhooks", lambda: _webhook_answers(kubectl), seconds=60)


def _webhook_answers(kubectl: Kubectl) -> bool:
    """A TrainJob without a runtime is refused by a webhook that works, and by nothing else."""
    job = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "probe", "namespace": "default"},
        "spec": {"runtimeRef": {"name": "no-such-runtime", "kind": "TrainingRuntime"}},
    }
    try:
        kubectl.run("create", "--dry-run=server", "-f", "-", feed=json.dumps(job))
    except Trouble as trouble:
        return "no-such-runtime" in str(trouble)
    return False
