"""A trace told briefly: times by category, what is longest, when nothing happens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.spec.gang.profiling import ProfileRequest, ProfileSummary
from gangline.train.profiling.trace_summary import BINS, MEMORY_POINTS, category_of, summarise

ASKED = ProfileRequest(first=3, last=4, ranks=(0,), word="w")


def event(name, ts, dur, cat="cpu_op", tid=1, **more):
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "pid": 7, "tid": tid, **more}


def steps(*spans):
    return [event(f"step {3 + n}", start, dur, cat="user_annotation") for n, (start, dur) in enumerate(spans)]


def test_time_is_distinguished_from_the_first_step_and_what_is_called_inside_is_not_counted_twice():
    found = summarise(
        [*steps((1000, 500), (1500, 500)), event("aten::linear", 1000, 400), event("aten::add", 1100, 100)],
        ASKED, rank=2, node="n",
    )  # fmt: skip
    assert (found.rank, found.node, found.word, found.device) == (2, "n", "w", "cpu")
    assert found.seconds == pytest.approx(1e-3)
    assert [(each.step, each.start) for each in found.steps] == [(3, 0.0), (4, pytest.approx(5e-4))]
    assert found.categories["matmul"] == pytest.approx(3e-4)
    assert found.categories["elementwise"] == pytest.approx(1e-4)
    assert found.idle_share == pytest.approx(0.6)
    assert [sum(found.lanes[name]) / BINS for name in ("matmul", "elementwise")] == pytest.approx([0.3, 0.1], abs=0.01)
    assert [each.name for each in found.top] == ["aten::linear", "aten::add"]
    assert found.top[0].total_seconds == pytest.approx(4e-4)


def test_communication_counts_as_exposed_only_where_nothing_else_is_under_way():
    found = summarise(
        [*steps((0, 1000)), event("aten::mm", 0, 400), event("gloo:all_reduce", 200, 600, tid=2)], ASKED, rank=0
    )
    assert found.busy_share == pytest.approx(0.4)
    assert found.exposed_share == pytest.approx(0.4)
    assert found.idle_share == pytest.approx(0.2)


def test_with_kernels_the_time_of_the_gpu_is_reported():
    kernels = [
        event("ampere_sgemm_128", 0, 300, cat="kernel"),
        event("ncclDevKernel_AllReduce", 300, 200, cat="kernel"),
    ]
    found = summarise([*steps((0, 1000)), event("aten::mm", 0, 1000), *kernels], ASKED, rank=0)
    assert found.device == "cuda"
    assert found.categories["matmul"] == pytest.approx(3e-4)
    assert found.idle_share == pytest.approx(0.5)


def test_operators_of_the_optimizer_are_its_own():
    outer = event("Optimizer.step#SGD.step", 0, 100, cat="user_annotation")
    found = summarise([*steps((0, 200)), outer, event("aten::add_", 10, 50)], ASKED, rank=0)
    assert found.categories["optimizer"] == pytest.approx(1e-4)


@pytest.mark.parametrize(
    ("name", "category"),
    [("aten::addmm", "matmul"), ("aten::tanh", "elementwise"), ("c10d::allreduce_", "communication"),
     ("AddmmBackward0", "matmul"), ("aten::dummy", "elementwise"), ("autograd::engine: AddBackward0", "elementwise"),
     ("Memcpy HtoD (Pageable -> Device)", "copy"), ("cudaLaunchSomething", "other")],
)  # fmt: skip
def test_names_have_their_category(name, category):
    assert category_of(name) == category


@given(
    sizes=st.lists(st.integers(0, 10**9), max_size=900),
    spans=st.lists(st.tuples(st.integers(0, 900), st.integers(0, 300)), max_size=40),
)
def test_whatever_was_traced_stays_small_and_within_bounds(sizes, spans):
    memory = [
        {"ph": "i", "name": "[memory]", "ts": n, "args": {"Total Allocated": size, "Device Type": 0}}
        for n, size in enumerate(sizes)
    ]
    calls = [event("aten::mm", start, dur, tid=number % 3) for number, (start, dur) in enumerate(spans)]
    found = summarise([*steps((0, 1000)), *memory, *calls], ASKED, rank=0)
    assert len(found.memory) <= MEMORY_POINTS
    assert found.peak_bytes == max(sizes, default=0)
    assert max((size for _, size in found.memory), default=0) == found.peak_bytes
    assert all(len(lane) == BINS and min(lane) >= 0 and max(lane) <= 1 for lane in found.lanes.values())
    assert 0 <= found.idle_share <= 1
    assert ProfileSummary.from_json(found.to_json()) == found


def test_a_trace_of_nothing_is_reported_as_nothing():
    assert summarise([], ASKED, rank=0).seconds == 0.0


def test_communication_next_to_work_is_hidden_and_the_rest_exposed():
    found = summarise(
        [*steps((0, 1000)), event("aten::mm", 0, 400), event("gloo:all_reduce", 200, 400, tid=2)], ASKED, rank=0
    )
    assert found.hidden_share == pytest.approx(0.2)
    assert found.exposed_share == pytest.approx(0.2)


def test_memory_is_reported_by_the_phase_that_it_was_taken_in():
    points = [(0, 100), (200, 900), (500, 400), (800, 300)]
    memory = [
        event("[memory]", ts, 0, args={"Device Type": 0, "Total Allocated": size}) | {"ph": "i"} for ts, size in points
    ]
    phases = [(1e-4, "forward"), (4e-4, "backward"), (9e-4, "optimizer")]
    found = summarise([*steps((0, 1000)), *memory], ASKED, rank=0, phases=phases)
    assert found.peak_by_phase == {"forward": 900, "backward": 400}
    assert found.phases == ((1e-4, "forward"), (4e-4, "backward"), (9e-4, "optimizer"))
    assert found.peak_bytes == 900
