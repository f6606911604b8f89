"""What a gang's objects are called, when they end, and what is refused before anything is sent."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.launch.kubernetes.gangs import CPU, GPU, NOW, setting

from gangline.errors import ConfigError
from gangline.launch.kubernetes.cluster.facts import ClusterFacts
from gangline.launch.kubernetes.objects.labels import END, SPEC, rfc3339
from gangline.launch.kubernetes.objects.render_context import labels, metadata
from gangline.spec.gang.podset import PodSet


@pytest.mark.parametrize("name", ["a" * 43, "9bytes", "Upper", "a_b", "a.b", "ends-", "", "a\n"])
def test_name_that_pods_cannot_carry_is_refused(name):
    with pytest.raises(ConfigError, match="wanted at most 42 of a-z, 0-9 and -"):
        setting(replace(CPU, name=name))


@given(st.from_regex(r"\A[a-z]([a-z0-9-]{0,40}[a-z0-9])?\Z"))
def test_longest_name_of_a_pod_fits_a_label(name):
    found = setting(replace(CPU, name=name, num_nodes=2048)).podset
    assert len(f"{found.name}-node-0-{found.num_nodes - 1}-abcde") <= 63


def test_gang_without_image_says_where_one_comes_from():
    with pytest.raises(ConfigError, match="wanted an image by digest, found none"):
        assert setting(replace(CPU, image=None)).image


@pytest.mark.parametrize(
    ("grace", "stop", "left"),
    [
        (0.0, 30, 0.0),
        (20.0, 30, 20.0),
        (30.0, 40, 30.0),
        (119.5, 130, 119.5),
        (590.0, 600, 590.0),
        (5000.0, 600, 590.0),
    ],
)
def test_pod_has_ten_seconds_beyond_the_grace_of_its_ranks(grace, stop, left):
    found = setting(replace(CPU, grace_seconds=grace))
    assert (found.stop_seconds, found.grace_seconds) == (stop, left)


@given(st.floats(min_value=0, max_value=1e5))
def test_ranks_are_never_promised_more_than_the_pod_gets(grace):
    found = setting(replace(CPU, grace_seconds=grace))
    assert 30 <= found.stop_seconds <= 600
    assert found.grace_seconds <= grace
    assert found.grace_seconds <= found.stop_seconds - 10


def test_kubernetes_waits_longer_than_the_keepers():
    found = setting(GPU)
    assert found.deadline_seconds > GPU.deadline_seconds + found.stop_seconds
    assert setting(replace(CPU, deadline_seconds=None)).deadline_seconds is None


def test_hard_end_leaves_a_week_to_wait():
    found = setting()
    end = NOW + timedelta(days=7, seconds=found.deadline_seconds)
    assert metadata(found)["annotations"][END] == rfc3339(end)
    assert END not in metadata(setting(replace(CPU, deadline_seconds=None)))["annotations"]


def test_priority_class_is_asked_for_only_where_there_is_one():
    assert setting(GPU).priority_class == "gangline-high"
    assert setting(GPU, facts=ClusterFacts()).priority_class is None


def test_root_holds_the_podset_itself():
    annotations = metadata(setting(GPU), root=True)["annotations"]
    assert PodSet.from_json(annotations[SPEC]) == GPU
    assert SPEC not in metadata(setting(GPU))["annotations"]


@pytest.mark.parametrize("podset", [CPU, GPU, replace(CPU, role="prove", name=CPU.name + "-prove")])
def test_labels_are_values_that_kubernetes_takes(podset):
    found = labels(podset)
    assert all(len(value) <= 63 and value[0].isalnum() and value[-1].isalnum() for value in found.values())
    assert found["gangline/commit"] == "9f31c2a09f31"
