"""Until when a holder holds: what its pods say of themselves, not what was known before it started."""

from datetime import UTC, datetime, timedelta

from gangline.launch.kubernetes.objects.render_context import STARTING_SECONDS
from gangline.launch.kubernetes.waiting.snapshot import Snapshot, holders

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def pod(name, *, started=None, seconds=None, marked="2026-11-29T12:00:00Z"):
    env = [{"name": "GANGLINE_DEADLINE_SECONDS", "value": seconds}] if seconds is not None else []
    return {
        "metadata": {"name": name, "labels": {"gangline/gang": "g"}, "annotations": {"gangline/end": marked}},
        "spec": {
            "terminationGracePeriodSeconds": 60,
            "containers": [{"name": "node", "env": env, "resources": {"requests": {"nvidia.com/gpu": "8"}}}],
        },
        "status": {"phase": "Running"} | ({"startTime": started} if started else {}),
    }


def until(*pods):
    return holders(Snapshot(now=NOW, num_nodes=1, others=list(pods)), "nvidia.com/gpu").until


def test_a_running_gang_ends_by_its_own_time_since_its_first_pod_started():
    began, later = "2026-11-21T11:00:00Z", "2026-11-21T11:20:00Z"
    wanted = datetime(2026, 11, 21, 11, tzinfo=UTC) + timedelta(seconds=3600 + 60 + STARTING_SECONDS)
    found = until(pod("0", started=later, seconds="3600.0"), pod("1", started=began, seconds="3600.0"))
    assert datetime.fromisoformat(found) == wanted


def test_one_that_is_about_to_start_ends_by_its_own_time_from_now_on_without_the_week_it_might_have_waited():
    wanted = NOW + timedelta(seconds=3600 + 60 + STARTING_SECONDS)
    assert datetime.fromisoformat(until(pod("0", seconds="3600.0"))) == wanted


def test_pods_that_wait_hold_no_server_but_count_in_a_quota():
    waits, runs = pod("0"), pod("1")
    runs["spec"]["nodeName"] = "h200-0"
    seen = Snapshot(now=NOW, num_nodes=1, others=[waits, runs])
    assert holders(seen, "nvidia.com/gpu").sentence.startswith("g holds 16 nvidia.com/gpu")
    assert holders(seen, "nvidia.com/gpu", on_servers=True).sentence.startswith("g holds 8 nvidia.com/gpu")
    assert holders(Snapshot(now=NOW, num_nodes=1, others=[waits]), "nvidia.com/gpu", on_servers=True) is None


def test_one_without_a_deadline_ends_as_it_is_marked():
    assert until(pod("0", started="2026-11-21T11:00:00Z")) == "2026-11-29T12:00:00Z"
    assert until(pod("0", started="2026-11-21T11:00:00Z", seconds="soon")) == "2026-11-29T12:00:00Z"
    assert until(pod("0", marked="")) == ""
