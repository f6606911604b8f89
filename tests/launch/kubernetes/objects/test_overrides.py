"""TrainJobs under a runtime that others share: what each Trainer can say, and what is refused by name."""

from dataclasses import replace

import pytest
from tests.launch.kubernetes.gangs import CPU, GPU, GPU_SITE, PAIR, SITE, setting, shared_setting
from tests.oracles.restricted_pods import violations

from gangline.errors import ConfigError
from gangline.launch.kubernetes.objects.manifest import merge
from gangline.launch.kubernetes.objects.pod import pod_template
from gangline.launch.kubernetes.objects.render import render_as
from gangline.launch.kubernetes.objects.root_objects import overriding_trainjob, shared_runtime
from gangline.spec.config.site import LaunchTable

NORMAL = replace(GPU, priority="normal")


def test_trainer_2_0_cannot_label_pods():
    with pytest.raises(ConfigError, match=r"wanted labels and annotations of pods, found .* \(podSpecOverrides\)"):
        overriding_trainjob(setting(), "shared", "podSpecOverrides")


@pytest.mark.parametrize("spelling", ["podTemplateOverrides", "runtimePatches"])
def test_priority_has_no_field_in_any_trainer(spelling):
    with pytest.raises(ConfigError, match=r'wanted priorityClassName, .* or set launch.launcher = "job"'):
        overriding_trainjob(setting(GPU, pod=GPU_SITE), "shared", spelling)


def test_images_that_must_be_there_already_have_no_field_in_any_trainer():
    with pytest.raises(ConfigError, match="wanted imagePullPolicy, found a Trainer"):
        overriding_trainjob(setting(pod=replace(SITE, pull="Never")), "shared", "runtimePatches")


@pytest.mark.parametrize("podset", [CPU, NORMAL, PAIR], ids=["cpu", "gpu", "pair"])
@pytest.mark.parametrize("spelling", ["podTemplateOverrides", "runtimePatches"])
def test_runtime_and_trainjob_together_make_the_pod_of_any_gang(spelling, podset):
    given = setting(podset, pod=replace(GPU_SITE, pull_secrets=("gangline-pull",)))
    made = applied(shared_runtime(setting(), "shared"), overriding_trainjob(given, "shared", spelling), spelling)
    wanted = pod_template(given, job=f"{podset.name}-node-0")
    wanted["spec"]["terminationGracePeriodSeconds"] = 600
    wanted["spec"].pop("priorityClassName")
    (container,) = wanted["spec"]["containers"]
    container["env"] = [each for each in container["env"] if not each["name"].startswith("PET_")]
    for field in ("ports", "imagePullPolicy"):
        del container[field]
        made["spec"]["containers"][0].pop(field, None)
    assert made == wanted
    assert violations(made, job=f"{podset.name}-node-0") == ()


def applied(runtime, trainjob, spelling):
    """What Trainer makes of the two: maps are merged, lists of named things by name."""
    template = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    (said,) = trainjob["spec"][spelling]
    if spelling == "runtimePatches":
        (job,) = said["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
        said = job["template"]["spec"]["template"]
    spec, patch = template["spec"], dict(said["spec"])
    trainer = trainjob["spec"]["trainer"]
    (container,), (changes,) = spec["containers"], patch.pop("containers")
    own = {"image": trainer["image"], "command": trainer["command"], "env": trainer["env"]}
    container = merge(merge(container, changes), own | {"resources": trainer["resourcesPerNode"]})
    return {"metadata": said["metadata"], "spec": merge(spec, patch) | {"containers": [container]}}


def test_trainjob_waits_for_no_runtime_of_its_own():
    found = render_as("trainjob", shared_setting("podTemplateOverrides"))
    assert found.before == ()
    assert found.root["spec"]["runtimeRef"] == {
        "apiGroup": "trainer.kubeflow.org",
        "kind": "ClusterTrainingRuntime",
        "name": "gangline",
    }
    assert found.root["spec"]["suspend"] is True


def test_unknown_trainer_is_taken_for_a_new_one():
    found = render_as("trainjob", setting(launch=LaunchTable(runtime="gangline")))
    assert found.root["spec"]["runtimePatches"][0]["manager"] == "gangline/launcher"


def test_shared_runtime_holds_nothing_of_one_gang():
    one, other = shared_runtime(setting(), "shared"), shared_runtime(setting(NORMAL, pod=GPU_SITE), "shared")
    assert one == other
    assert SITE.account not in str(one)
