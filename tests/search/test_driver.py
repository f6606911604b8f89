"""Driver of a search over functions as trials: who runs, who is stopped, when it ends, what a crash leaves."""

import pytest
from tests.search.functions import (
    ID,
    PREFIX,
    PROJECT,
    FunctionRuns,
    MemoryStore,
    Screen,
    bowl,
    make_driver,
    make_request,
)

from gangline.errors import IntegrityError, StorageError
from gangline.line.run import lease
from gangline.search.journal import StoreJournal
from gangline.search.searches import read_search
from gangline.search.study import SearchStudy
from gangline.spec.search import Dimension, SearchAnswer


class Killed(StorageError):
    """Stands for SIGKILL: nothing is tidied up in the store."""


def test_a_search_ends_with_the_best_of_its_trials_and_stops_those_behind():
    runs = FunctionRuns(make_request())
    view = make_driver(MemoryStore(), runs.request, runs, trials=20).run()
    assert view.ending == "trials"
    assert len(view.trials) == 20
    ended = [each for each in view.trials if each.state == "ended"]
    pruned = [each for each in view.trials if each.state == "pruned"]
    assert view.best == min(ended, key=lambda each: each.values).number
    assert len(pruned) > len(ended)
    assert all(each.reason == f"pruned at step {max(each.at_rungs)}" for each in pruned)
    assert all(each.values == (bowl(each.settings, 90),) for each in ended)
    assert runs.steps < 0.6 * 20 * 90
    assert view.importance_by == "PED-ANOVA"


def test_equal_searches_have_equal_trials_and_another_seed_has_others():
    first, second = (make_driver(MemoryStore()).run().trials for _ in range(2))
    assert [each.settings for each in first] == [each.settings for each in second]
    other = make_driver(MemoryStore(), make_request(seed=2)).run().trials
    assert [each.settings for each in first] != [each.settings for each in other]


@pytest.mark.parametrize("sampler", ["random", "grid", "nsga2"])
@pytest.mark.parametrize("pruner", ["median", "hyperband", "none"])
def test_every_sampler_and_pruner_comes_to_an_end(sampler, pruner):
    space = {"a.lr": Dimension(low=0.01, high=0.05, step=0.01), "a.size": Dimension(choices=(1, 2))}
    view = make_driver(MemoryStore(), make_request(sampler=sampler, pruner=pruner, space=space)).run()
    assert view.ending == "trials"
    assert len(view.trials) == (10 if sampler == "grid" else 12)  # a grid has no more
    if sampler == "grid":
        assert len({tuple(each.settings.values()) for each in view.trials}) == 10


def test_of_two_metrics_a_front_is_left_and_none_is_stopped():
    class Two(FunctionRuns):
        def look(self, run):
            from dataclasses import replace

            status, lr = super().look(run), self.runs.get(run, {"settings": {"a.lr": 0}})["settings"]["a.lr"]
            return status if status.values is None else replace(status, values=(lr, -lr))

    request = make_request(metrics=("m", "n"), better=("lower", "lower"), sampler="nsga2", rungs=())
    view = make_driver(MemoryStore(), request, Two(request)).run()
    distinct = {each.settings["a.lr"] for each in view.trials}
    assert {view.trials[number].settings["a.lr"] for number in view.front} == distinct


def test_a_metric_that_is_better_higher_is_judged_by_a_falling_loss():
    """The reported loss is turned, and shown as it is."""
    request = make_request(better=("higher",), measured_by="loss")

    class Turned(FunctionRuns):
        def look(self, run):
            from dataclasses import replace

            status = super().look(run)
            return status if status.values is None else replace(status, values=(-status.values[0],))

    view = make_driver(MemoryStore(), request, Turned(request), trials=20).run()
    pruned = [each for each in view.trials if each.state == "pruned"]
    ended = [each for each in view.trials if each.state == "ended"]
    assert max(ended, key=lambda each: each.values).number == view.best
    least = min(each.at_rungs[10] for each in view.trials)
    assert all(each.at_rungs[10] > least for each in pruned)
    assert all(value > 0 for each in view.trials for value in each.at_rungs.values())


def test_patience_ends_a_search_without_gain():
    request = make_request()
    view = make_driver(MemoryStore(), request, FunctionRuns(request, curve=lambda *_: 1.0), trials=50, patience=5).run()
    assert view.ending == "patience"
    assert len(view.trials) == 6  # the first one is the best of equals


def test_five_first_failures_end_a_search_and_later_ones_do_not():
    request = make_request()
    broken = FunctionRuns(request, fails=lambda _: "exit 30: its program raised")
    view = make_driver(MemoryStore(), request, broken).run()
    assert (view.ending, len(view.trials)) == ("failures", 5)
    assert {each.state for each in view.trials} == {"failed"}
    assert all("raised" in each.reason for each in view.trials)
    some = FunctionRuns(request, fails=lambda settings: "diverged" if settings["a.lr"] > 0.01 else "")
    assert make_driver(MemoryStore(), request, some).run().ending == "trials"


def test_a_failed_trial_has_no_value_and_teaches_no_number():
    request = make_request()
    runs = FunctionRuns(request, fails=lambda settings: "loss is nan" if settings["a.lr"] > 0.02 else "")
    view = make_driver(MemoryStore(), request, runs, trials=20).run()
    failed = [each for each in view.trials if each.state == "failed"]
    assert failed
    assert all(each.values == () and each.at_rungs == {} for each in failed)
    assert view.trials[view.best].settings["a.lr"] <= 0.02


def test_a_setting_that_ran_already_is_taken_and_costs_nothing():
    request = make_request(space={"a.lr": Dimension(choices=(0.01, 0.02)), "a.size": Dimension(choices=(1, 2))})
    runs = FunctionRuns(request)
    settings = {"a.lr": 0.01, "a.size": 1}
    other = runs.identify(settings).id
    runs.begin(other, settings)
    runs.taken.add(other)
    view = make_driver(MemoryStore(), request, runs, trials=8).run()
    taken = [each for each in view.trials if each.taken and each.run == other]
    assert taken[0].state == "ended"  # another's run is never stopped
    assert taken[0].device_hours == 0
    assert not runs.runs[other]["cancelled"]
    assert len(runs.runs) <= 4
    assert all(each["starts"] == 1 for each in runs.runs.values())
    twins = [each for each in view.trials if each.reason.startswith("settings of trial")]
    assert len(view.trials) - len(twins) == len(runs.runs)
    assert all(each.device_hours == 0 for each in twins)


def test_a_killed_driver_is_followed_by_one_that_adopts_what_runs():
    """At some of its looks, with four trials at a time; every effect is `slow`, in `faults/c`."""
    request = make_request()
    for at in (1, 9, 22):
        store, runs, looks = MemoryStore(), FunctionRuns(request), iter(range(1000))

        class Mortal(FunctionRuns):
            def look(self, run, looks=looks, at=at):
                if next(looks) == at:
                    raise Killed
                return super().look(run)

        mortal = Mortal(request, runs=runs.runs)
        with pytest.raises(Killed):
            make_driver(store, request, mortal, parallel=4).run()
        view = make_driver(store, request, runs, parallel=4).run()
        assert len(view.trials) == 12
        assert {each.state for each in view.trials} <= {"ended", "pruned"}
        assert all(each["starts"] == 1 for each in runs.runs.values())
        assert len(runs.runs) == len({each.run for each in view.trials})


def test_a_search_has_one_driver_and_a_late_one_stops():
    store, request = MemoryStore(), make_request()

    class Intruder(FunctionRuns):
        def look(self, run):
            if len(self.runs) == 3 and "second" not in seen:
                with pytest.raises(lease.HeldError) as seen["second"]:
                    make_driver(store, request, FunctionRuns(request)).run()
                blob = store.get(f"{PREFIX}/lease.json")
                store.put(f"{PREFIX}/lease.json", blob.data.replace(b'"holder":"', b'"holder":"other-'))
            return super().look(run)

    seen = {}
    first = make_driver(store, request, Intruder(request))
    with pytest.raises(lease.HeldError, match="another process"):
        first.run()
    assert "driven by process" in str(seen["second"].value)
    assert len(SearchStudy(store, PREFIX, request).trials()) < 12


def test_stop_ends_what_runs_and_the_same_call_goes_on():
    store, request = MemoryStore(), make_request()

    class Stopped(FunctionRuns):
        def look(self, run):
            if len(self.runs) == 4:
                SearchStudy(store, PREFIX, request).write("stop", "by hand")
            return super().look(run)

    runs = Stopped(request)
    view = make_driver(store, request, runs, parallel=2).run()
    assert view.ending == "stopped"
    assert all(each.state in ("ended", "pruned", "failed") for each in view.trials)
    assert any("stopped" in each["cancelled"] for each in runs.runs.values())
    again = make_driver(store, request, FunctionRuns(request, runs=runs.runs), parallel=2).run()
    assert (again.ending, len(again.trials)) == ("trials", 12)


def test_a_search_without_driver_is_stopped_by_who_asks():
    store, request = MemoryStore(), make_request()
    runs = FunctionRuns(request)

    class Mortal(FunctionRuns):
        def look(self, run):
            if len(self.runs) == 2:
                raise Killed
            return super().look(run)

    with pytest.raises(Killed):
        make_driver(store, request, Mortal(request, runs=runs.runs), parallel=2).run()
    view = make_driver(store, request, runs).stop("enough")
    assert view.ending == "stopped"
    assert len(view.trials) <= 3
    assert not [each for each in view.trials if each.state in ("running", "waiting")]


def test_the_answer_is_asked_for_at_the_end_and_only_there():
    asked = []

    def confirm(view):
        asked.append(view.best)
        return SearchAnswer(trial=view.best, settings={}, verdict="BETTER", metric="m")

    view = make_driver(MemoryStore()).run(confirm)
    assert asked == [view.best]
    assert view.answer.verdict == "BETTER"
    request = make_request()
    failing = FunctionRuns(request, fails=lambda _: "no")
    assert make_driver(MemoryStore(), request, failing).run(confirm).answer is None
    assert len(asked) == 1


def test_the_screen_sees_each_state_and_a_reader_elsewhere_the_same():
    store, screen, request = MemoryStore(), Screen(), make_request()
    store.put(f"{PREFIX}/search.json", request.to_json())
    view = make_driver(store, request, screen=screen, parallel=3).run()
    states = {each.state for seen in screen.views for each in seen.trials}
    assert states >= {"running", "ended", "pruned"}
    read = read_search(store, PROJECT, ID)
    assert [each.settings for each in read.trials] == [each.settings for each in view.trials]
    ended = next(each for each in read.trials if each.state == "ended")
    assert ended.differs == "its run has no record"  # functions leave none


def test_the_journal_of_another_search_is_refused():
    store, other = MemoryStore(), "s-00000000-bbbb"
    make_driver(store, make_request())
    for key, data in list(store.objects.items()):
        store.put(key.replace(ID, other), data)
    with pytest.raises(IntegrityError, match="another study"):
        make_driver(store, make_request(id=other))


def test_a_look_at_the_journal_reads_what_is_new():
    store = MemoryStore()
    driver = make_driver(store)
    driver.run()
    store.gets = 0
    driver._study.trials()
    assert store.gets < 5


class MortalStore:
    """A store whose process dies before or after its n-th write; nothing of a dead process reaches it."""

    def __init__(self, store, at, *, after):
        self._store, self._at, self._after, self.writes, self._dead = store, at, after, 0, False
        self.url = store.url

    def __getattr__(self, name):
        method = getattr(self._store, name)
        return method if name in ("get", "list", "head") else lambda *values: self._write(method, values)

    def _write(self, method, values):
        if self._dead:
            raise Killed
        self.writes += 1
        self._dead = self.writes == self._at
        if self._dead and not self._after:
            raise Killed
        result = method(*values)
        if self._dead:
            raise Killed
        return result


def entries_of(store):
    """Entries of the journal without times, names of processes, what a process says of the end, and costs: a run goes
    on without a driver of its search."""
    logs = StoreJournal(store, f"{PREFIX}/journal").read_logs(0)
    left_out = ("worker_id", "datetime_start", "datetime_complete")
    plain = [{key: value for key, value in each.items() if key not in left_out} for each in logs]
    return [each for each in plain if each["op_code"] != 2 and "cost" not in each.get("user_attr", {})]


def killed_at(number, *, after, request):
    """Journal, runs and view after a kill at one write and a second driver."""
    store, runs = MemoryStore(), FunctionRuns(request)
    mortal = MortalStore(store, number, after=after)
    try:
        view = make_driver(mortal, request, runs, trials=6).run()
    except Killed:
        store.objects.pop(f"{PREFIX}/lease.json", None)  # its holder is dead
        view = make_driver(store, request, runs, trials=6).run()
    return entries_of(store), {run: each["starts"] for run, each in runs.runs.items()}, view, mortal.writes


def require_same_after_kills(seed, numbers=None):
    request = make_request(seed=seed)
    entries, starts, view, count = killed_at(10**9, after=False, request=request)
    for number in numbers or range(1, count + 1):
        for after in (False, True):
            left, begun, again, _ = killed_at(number, after=after, request=request)
            assert left == entries, (number, after)
            assert begun == starts, (number, after)
            assert (again.best, again.ending) == (view.best, view.ending)
    return count


def test_a_driver_killed_at_a_write_is_followed_to_the_same_journal():
    assert require_same_after_kills(1, numbers=(2, 9, 14, 23, 29, 33, 47)) > 50


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(5))
def test_a_driver_killed_at_any_write_is_followed_to_the_same_journal(seed):
    require_same_after_kills(seed)
