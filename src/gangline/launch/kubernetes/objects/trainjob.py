"""A gang under Kubeflow Trainer: a TrainingRuntime of its own carries the template, a thin TrainJob refers to it.

Of Trainer 2.0 to 2.3 every field of that template is spelt alike; what differs is how a TrainJob alters a runtime that
others share, which `overrides` knows.
"""

from gangline.launch.kubernetes.api.protocol import Object
from gangline.launch.kubernetes.api.rights import TRAINER
from gangline.launch.kubernetes.objects.jobset import jobset_spec
from gangline.launch.kubernetes.objects.setting import Setting, collection, labels, metadata

GROUP_VERSION = f"{TRAINER}/v1alpha1"
ANCESTOR = {f"{TRAINER}/trainjob-ancestor-step": "trainer"}
"""Label of the Job that a TrainJob's settings are meant for."""


def trainjobs_path(namespace: str) -> str:
    return collection(GROUP_VERSION, "trainjobs", namespace)


def runtimes_path(namespace: str) -> str:
    return collection(GROUP_VERSION, "trainingruntimes", namespace)


def training_runtime(setting: Setting) -> Object:
    """No `torch` policy: the environment stays ours, Trainer only counts nodes."""
    return {
        "apiVersion": GROUP_VERSION,
        "kind": "TrainingRuntime",
        "metadata": metadata(setting),
        "spec": {
            "mlPolicy": {"numNodes": setting.podset.num_nodes},
            "template": {
                "metadata": {"labels": labels(setting.podset)},
                "spec": jobset_spec(setting, job_labels=ANCESTOR),
            },
        },
    }


def trainjob(setting: Setting) -> Object:
    """Suspended; runs when `suspend` is taken away."""
    return {
        "apiVersion": GROUP_VERSION,
        "kind": "TrainJob",
        "metadata": metadata(setting, root=True),
        "spec": {
            "runtimeRef": {"apiGroup": TRAINER, "kind": "TrainingRuntime", "name": setting.podset.name},
            "suspend": True,
        },
    }
