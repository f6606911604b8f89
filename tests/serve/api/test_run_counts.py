"""Counts for pages: the same within two seconds, each reader its own, never more than a few remembered."""

from gangline.serve.api.service import COUNT_SECONDS, MAX_CACHED, RunCounts


def test_runs_are_counted_once_in_two_seconds_for_the_same_projects():
    asked, now = [], [0.0]

    def count(projects):
        asked.append(projects)
        return {("alpha", "passed"): len(asked)}

    run_counts = RunCounts(count, clock=lambda: now[0])
    assert run_counts.of(("alpha",)) == run_counts.of(("alpha",)) == {("alpha", "passed"): 1}
    assert run_counts.of(None) == {("alpha", "passed"): 2}
    now[0] = COUNT_SECONDS
    assert run_counts.of(("alpha",)) == {("alpha", "passed"): 3}
    assert asked == [("alpha",), None, ("alpha",)]


def test_many_readers_are_not_all_remembered():
    run_counts = RunCounts(lambda _: {})
    for number in range(3 * MAX_CACHED):
        run_counts.of((f"p{number}",))
    assert len(run_counts._cached) <= MAX_CACHED
