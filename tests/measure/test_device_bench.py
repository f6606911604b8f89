"""What rates are measured on: operands that no cache holds, whatever the device's is."""

from types import SimpleNamespace

import pytest
import torch

from gangline.measure import device_bench

ASKED = device_bench.BenchRequest(device="cpu", precision="bf16", ranks=1, cores=1, matrices=[])


@pytest.fixture
def measured(monkeypatch):
    """Bytes of operands of every operation that is timed, on a device whose cache holds `cache`."""

    def of(cache):
        monkeypatch.setattr(device_bench, "cache_bytes", lambda _: cache)
        found = []
        made = device_bench.DeviceBench(ASKED, torch.device("cpu"))

        def seconds(make):
            calls = made._enough(make)
            found.append((len(calls), made._made))
            return 1.0

        monkeypatch.setattr(made, "_seconds", seconds)
        return made, found

    return of


@pytest.mark.parametrize("cache", [0, 2**20, 4 * 2**20])
def test_a_stream_is_larger_than_the_cache(measured, cache):
    made, found = measured(cache)
    assert made._stream() == 1.0
    [(calls, size)] = found
    assert 3 * size / calls == pytest.approx(
        max(device_bench.STREAMED_BYTES, 32 * cache), rel=1e-6
    )  # two read, one written


@pytest.mark.parametrize(("cache", "calls"), [(0, 8), (4 * 2**20, 8), (16 * 2**20, 16)])
def test_products_go_round_operands_that_no_cache_holds(measured, cache, calls):
    """4 MiB for each: two matrices of 1,024 by 1,024 in 16 bits."""
    made, found = measured(cache)
    made._seconds(lambda: made._product(1024, 1024, 1024))
    assert found == [(calls, calls * 2**22)]
    assert calls * 2**22 >= 4 * cache or calls == device_bench.MOST_CALLS


@pytest.mark.parametrize(("device", "heads", "moved"), [("cpu", 1, 2**24), ("cuda", 53, 2**28)])
def test_a_gpu_is_measured_on_as_much_as_fills_it(monkeypatch, device, heads, moved):
    """One head of attention of 4,096 places, and operations of 16 MiB, are as slow there as an idle machine."""
    request = device_bench.BenchRequest(
        device=device, precision="bf16", ranks=1, cores=1, matrices=[], attention=[[4096, 4096, 64, 1]]
    )
    made = device_bench.DeviceBench(request, torch.device("cpu"))
    made._device = torch.device(device)
    timed = []
    monkeypatch.setattr(made, "_seconds", lambda make: timed.append(make.args[0].heads) or 1.0)
    assert len(list(made._attended())) == 1
    assert (timed, made._moved_bytes()[-1]) == ([heads], moved)


def test_the_cache_of_a_gpu_is_what_its_driver_says(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(L2_cache_size=60 * 2**20))
    assert device_bench.cache_bytes(torch.device("cuda")) == 60 * 2**20
    assert device_bench.cache_bytes(torch.device("cpu")) == 0
