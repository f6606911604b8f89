"""What a pod needs, by the scheduler's own rule."""

from hypothesis import given
from hypothesis import strategies as st

from gangline.launch.kubernetes.placement.resources import (
    add,
    as_text,
    missing_resources,
    num_fitting,
    pod_needs,
    subtract,
)

amounts = st.dictionaries(st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]), st.integers(0, 1000))


def container(cpu, **more):
    return {"resources": {"requests": {"cpu": cpu}}, **more}


def test_containers_add_up_and_a_pod_takes_one_place():
    assert pod_needs({"containers": [container("500m"), container("1")]}) == {"cpu": 1500, "pods": 1}


def test_the_largest_init_container_counts_where_it_asks_more_than_the_run():
    spec = {"containers": [container("1")], "initContainers": [container("3"), container("2")]}
    assert pod_needs(spec)["cpu"] == 3000


def test_sidecars_stay_next_to_the_run_and_next_to_later_init_containers():
    spec = {
        "containers": [container("1")],
        "initContainers": [container("2"), container("500m", restartPolicy="Always"), container("1200m")],
    }
    assert pod_needs(spec)["cpu"] == 2000
    spec["initContainers"].append(container("1800m"))
    assert pod_needs(spec)["cpu"] == 2300


def test_overhead_and_requests_of_the_whole_pod_count():
    spec = {"containers": [container("1")], "overhead": {"cpu": "100m"}, "resources": {"requests": {"cpu": "4"}}}
    assert pod_needs(spec)["cpu"] == 4100


def test_containers_without_requests_need_a_place_only():
    assert pod_needs({"containers": [{"name": "node"}]}) == {"pods": 1}


@given(free=amounts, need=amounts.filter(lambda each: any(each.values())), number=st.integers(0, 5))
def test_as_many_fit_as_slots_say_and_no_more(free, need, number):
    rest = free
    fitted = 0
    while not missing_resources(rest, need):
        rest, fitted = subtract(rest, need), fitted + 1
    assert num_fitting(free, need) == fitted
    grown = free
    for _ in range(number):
        grown = add(grown, need)
    assert num_fitting(grown, need) >= number


def test_amounts_read_as_people_write_them():
    assert [as_text("cpu", 2500), as_text("memory", 64 * 10**9), as_text("nvidia.com/gpu", 8)] == [
        "2.5 cpu",
        "64 GB memory",
        "8 nvidia.com/gpu",
    ]
