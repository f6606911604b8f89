"""Our offline check of pods against a real server, PodSecurity and admission policy: they agree, both ways."""

import pytest
from hypothesis import HealthCheck, assume, given, settings
from tests.launch.kubernetes.mutations import MUTATIONS, good_pod, mutated
from tests.oracles.restricted_pods import violations

from gangline.launch.kubernetes.client.api import ApiRejected

pytestmark = pytest.mark.cluster


REFUSALS = ("violates PodSecurity", "denied request: gangline:")


def is_refused(api, pod):
    """Do PodSecurity or our admission policy refuse `pod`? None: the server finds it no pod at all."""
    try:
        api.create(f"/api/v1/namespaces/{api.namespace}/pods", pod, dry_run=True)
    except ApiRejected as error:
        return True if any(words in str(error) for words in REFUSALS) else None
    return False


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda each: each.name)
def test_server_and_offline_check_judge_a_change_alike(mutation, api):
    pod = good_pod()
    mutation.apply(pod, pod["spec"]["containers"][0])
    wanted = mutation.control is not None
    assert (is_refused(api, pod), bool(violations(pod))) == (wanted, wanted)


def agreement(num_pods):
    """A test that counts pods which one of the two refuses and the other does not."""

    @settings(
        max_examples=num_pods,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
    @given(drawn=mutated(num=4))
    def test(api, drawn):
        pod, _ = drawn
        found = is_refused(api, pod)
        assume(found is not None)
        assert found == bool(violations(pod))

    return test


test_200_mutated_pods_are_judged_alike = pytest.mark.row("A3")(agreement(200))
test_1000_mutated_pods_are_judged_alike = pytest.mark.slow(pytest.mark.row("A3")(agreement(1000)))
