"""A gang as one YAML stream: what `kubectl apply` would leave is what a submit leaves."""

from dataclasses import replace

import pytest
import yaml
from tests.cluster.fake.api import FakeApi
from tests.launch.kubernetes.gangs import CPU, GPU, GPU_SITE, cases, kueue_setting, setting

from gangline.errors import ConfigError
from gangline.launch.kubernetes.cluster.facts import ClusterFacts
from gangline.launch.kubernetes.objects.manifest import dry_run, in_order, render_yaml
from gangline.launch.kubernetes.objects.render import render_as


@pytest.mark.parametrize("name", sorted(cases()))
def test_stream_reads_back_as_the_objects(name):
    kind, given = cases()[name]
    assert list(yaml.safe_load_all(render_yaml(kind, given))) == in_order(render_as(kind, given))


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("job", ["Job", "Service", "NetworkPolicy"]),
        ("jobset", ["JobSet", "NetworkPolicy"]),
        ("trainjob", ["TrainingRuntime", "TrainJob", "NetworkPolicy"]),
    ],
)
def test_objects_stand_in_the_order_of_their_creation(kind, wanted):
    assert [thing["kind"] for thing in yaml.safe_load_all(render_yaml(kind, setting()))] == wanted


@pytest.mark.parametrize(("kind", "job"), [("job", ""), ("jobset", "-node-0"), ("trainjob", "-node-0")])
def test_secret_is_named_after_the_job_that_mounts_it_and_not_shown(kind, job):
    text = render_yaml(kind, setting())
    assert text.startswith(
        f"# Must exist first: Secret bytegpt-9f31c2a0-k7q2mx{job}.gang in namespace gangs"
        " with the keys checkpoint-key, store-credentials.\n"
    )
    assert f"secretName: bytegpt-9f31c2a0-k7q2mx{job}.gang\n" in text
    assert "kind: Secret" not in text


def test_gang_without_secrets_needs_none():
    assert render_yaml("job", setting(replace(CPU, secrets=()))).startswith("---\n")


def test_root_is_as_its_last_write_leaves_it():
    def root(given):
        return next(iter(yaml.safe_load_all(render_yaml("job", given))))

    assert root(setting())["spec"]["suspend"] is False
    gated = root(setting(GPU, pod=GPU_SITE, route="gates"))
    assert (gated["spec"]["suspend"], gated["metadata"]["annotations"]["gangline/queued"]) == (
        True,
        "2026-03-01T12:00:00Z",
    )
    queued = root(kueue_setting())
    assert (queued["spec"]["suspend"], queued["metadata"]["labels"]["kueue.x-k8s.io/queue-name"]) == (True, "shared")


@pytest.mark.parametrize("kind", ["job", "jobset", "trainjob"])
def test_dry_run_creates_nothing(kind):
    api = FakeApi("gangs", serve=("trainer", "jobset"))
    given = setting(facts=ClusterFacts())
    dry_run(api, kind, given)
    paths = [path for path, _ in render_as(kind, given).around]
    assert [api.items(path)[0] for path in paths] == [[]] * len(paths)


def test_dry_run_of_a_gang_that_exists_finds_nothing_wrong():
    api = FakeApi("gangs")
    rendered = render_as("job", setting(facts=ClusterFacts()))
    api.create(rendered.root_path, rendered.root)
    dry_run(api, "job", setting(facts=ClusterFacts()))
    assert len(api.items(rendered.root_path)[0]) == 1


def test_dry_run_says_what_the_server_refuses():
    with pytest.raises(ConfigError, match="jobsets"):
        dry_run(FakeApi("gangs"), "jobset", setting())


def test_nothing_is_written_by_reference():
    text = render_yaml("trainjob", setting(GPU, pod=GPU_SITE, route="gates"))
    assert "&id" not in text
    assert "*id" not in text
