"""Token buckets: what a burst costs, and how many callers are remembered."""

from gangline.serve.web.rate_limits import MAX_CALLERS, TokenBuckets


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_after_a_burst_one_request_comes_free_at_the_rate():
    clock = Clock()
    buckets = TokenBuckets(50.0, 300.0, clock)
    assert [buckets.take("a") for _ in range(300)] == [0.0] * 300
    assert buckets.take("a") == 0.02
    clock.now = 0.02
    assert buckets.take("a") == 0.0
    assert buckets.take("a") > 0.0
    assert buckets.take("b") == 0.0


def test_many_callers_are_not_all_remembered():
    buckets = TokenBuckets(50.0, 300.0, Clock())
    for number in range(2 * MAX_CALLERS):
        buckets.take(f"peer {number}")
    assert len(buckets._levels) == MAX_CALLERS
