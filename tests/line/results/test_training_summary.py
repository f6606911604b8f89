"""The account of a training, against trainings that are cut off, resumed and rolled back at random."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.line.results.training_summary import count_samples, read_training
from gangline.spec.measurements import LateUpdates, Samples, StartedFrom

BATCH = 4


class Trainer:
    """Trains on paper: what it does to samples is known, and rank 0's events are written down."""

    def __init__(self):
        self.events, self.generation = [], 0
        self.step = self.cursor = self.redone = 0
        self.skipped, self.saved = [], [(0, 0)]

    def tell(self, event, **fields):
        self.events.append({"event": event, "generation": self.generation, **fields})

    def train(self, steps):
        for _ in range(steps):
            start = self.cursor
            taken = 0
            while taken < BATCH:
                taken += not any(a <= self.cursor < b for a, b in self.skipped)
                self.cursor += 1
            self.step += 1
            self.tell("step", step=self.step, span=[start, self.cursor])

    def save(self):
        self.saved.append((self.step, self.cursor))

    def die(self, source):
        self.generation += 1
        self.tell("started")
        step, cursor = self.saved[-1]
        self.redone += self.step - step
        self.step, self.cursor = step, cursor
        if step:
            self.tell("resumed", step=step, cursor=cursor, **source)

    def roll_back(self):
        """The next step is not finite: its samples are left out from now on."""
        step, cursor = self.saved[-1]
        if not step:
            return
        self.skipped.append((self.cursor, self.cursor + BATCH))
        self.tell("non_finite", answer="rollback", samples=list(self.skipped[-1]))
        self.redone += self.step - step
        self.step, self.cursor = step, cursor
        self.tell("resumed", step=step, cursor=cursor, source="store")

    @property
    def text(self):
        return "".join(json.dumps(each) + "\n" for each in self.events).encode()


SOURCES = {"node": {"source": "copy", "peer_bytes": 0}, "peer": {"source": "copy", "peer_bytes": 9}, "store": {}}
moves = st.one_of(
    st.tuples(st.just("train"), st.integers(1, 6)), st.just(("save",)), st.just(("roll_back",)),
    st.tuples(st.just("die"), st.sampled_from(sorted(SOURCES))),
)  # fmt: skip


@given(course=st.lists(moves, max_size=30))
def test_what_was_cut_off_is_done_again_and_every_sample_counts_once(course):
    trainer, sources = Trainer(), []
    trainer.tell("started")
    for name, *arguments in course:
        if name == "die":
            sources += arguments if trainer.saved[-1][0] else []
            trainer.die(SOURCES[arguments[0]])
        else:
            getattr(trainer, name)(*arguments)
    trainer.train(1)
    seen = read_training([trainer.text])
    assert seen.resumes == {each: sources.count(each) for each in sources}
    assert seen.steps_redone == trainer.redone
    assert (seen.samples.lost, seen.samples.repeated) == (0, 0)
    assert seen.samples.trained == trainer.step * BATCH


@given(course=st.lists(moves, max_size=12), step=st.integers(1, 9))
def test_what_the_run_of_a_start_trained_is_not_counted(course, step):
    trainer = Trainer()
    trainer.step, trainer.cursor = step, step * BATCH
    trainer.saved = [(step, trainer.cursor)]
    start = {"source": "start", "checkpoint": "runs/p/c/r/gang/checkpoints/step-00000009", "converted": ["a <- b"]}
    trainer.tell("resumed", step=step, cursor=trainer.cursor, **start)
    for name, *arguments in course:
        if name == "die":
            trainer.die(start if trainer.saved[-1][0] == step else SOURCES[arguments[0]])
        else:
            getattr(trainer, name)(*arguments)
    trainer.train(1)
    seen = read_training([trainer.text])
    assert (seen.samples.trained, seen.samples.lost) == ((trainer.step - step) * BATCH, 0)
    assert seen.steps_redone == trainer.redone
    assert seen.started_from == StartedFrom(checkpoint=start["checkpoint"], step=step, converted=1)


@given(first=st.integers(1, 8), more=st.integers(1, 8), off=st.integers(-4, 4))
def test_a_cursor_that_is_off_loses_or_repeats_so_many_samples(first, more, off):
    trainer = Trainer()
    trainer.train(first)
    trainer.save()
    trainer.die({})
    trainer.cursor += off
    trainer.train(more)
    samples = read_training([trainer.text]).samples
    assert (samples.lost, samples.repeated) == (max(0, off), max(0, -off))


def test_gangs_of_one_stage_are_one_training_though_they_count_generations_again():
    lost, second = Trainer(), Trainer()
    lost.train(5)
    second.train(3)
    seen = read_training([lost.text, second.text])
    assert (seen.steps_redone, seen.samples) == (5, Samples(trained=12, again=20))


def killed_before_it_reported(*, reported):
    """Rank 0's text and that of a peer, which saw the same and told all."""
    trainer = Trainer()
    trainer.train(6)
    peer, own = trainer.text, trainer.text.splitlines(keepends=True)[:reported]
    trainer.save()
    trainer.events.clear()
    trainer.die(SOURCES["node"])
    trainer.train(2)
    return b"".join(own) + trainer.text, peer


def test_steps_that_a_killed_rank_had_not_reported_are_those_of_the_rank_that_did():
    own, peer = killed_before_it_reported(reported=4)
    assert read_training([own], peers=[b"", peer]).samples == Samples(trained=32)
    assert read_training([own], peers=[b"".join(peer.splitlines(keepends=True)[:5])]).samples == Samples(
        trained=28, unknown=4
    )


def test_samples_of_steps_that_no_one_reported_are_unknown():
    own, _ = killed_before_it_reported(reported=4)
    assert read_training([own]).samples == Samples(trained=24, unknown=8)


def test_a_peer_does_not_mend_a_cursor_that_is_wrong():
    """The peer took six batches; the checkpoint says eight are passed."""
    trainer = Trainer()
    trainer.train(6)
    peer, own = trainer.text, trainer.text.splitlines(keepends=True)[:4]
    trainer.cursor += 2 * BATCH
    trainer.save()
    trainer.events.clear()
    trainer.die({})
    trainer.train(1)
    assert read_training([b"".join(own) + trainer.text], peers=[peer]).samples == Samples(trained=28, lost=8)


def test_peers_are_read_only_where_something_is_unreported():
    def never():
        yield pytest.fail("nothing is untold")

    trainer = Trainer()
    trainer.train(3)
    assert read_training([trainer.text], peers=never()).samples == Samples(trained=12)


def test_a_rank_that_was_lost_continues_where_the_others_are():
    trainer = Trainer()
    trainer.train(4)
    peer = trainer.text
    trainer.events.pop()
    trainer.generation += 1
    trainer.tell("healed", step=4, cursor=16, had=-1)
    trainer.train(1)
    seen = read_training([trainer.text], peers=[peer])
    assert (seen.resumes, seen.samples) == ({"living": 1}, Samples(trained=20))


def test_traffic_is_counted_over_the_steps_it_was_sent_in():
    """A process counts from the end of its first step on, and tells with every tenth step."""
    steps = [{"event": "step", "generation": 0, "step": step, "span": [step, step + 1]} for step in range(1, 26)]
    for step, sent in ((10, 90.0), (20, 110.0)):
        steps[step - 1]["wire_bytes"] = sent
    seen = read_training([b"".join(json.dumps(each).encode() + b"\n" for each in steps)])
    assert seen.wire_bytes_per_step == 200 / 19


def test_a_program_that_takes_its_own_samples_says_nothing_about_them():
    steps = b"".join(b'{"event": "step", "generation": %d, "step": %d}\n' % each for each in ((0, 1), (0, 2), (1, 1)))
    seen = read_training([steps])
    assert (seen.samples, seen.steps_redone) == (None, 2)


spans = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 8)).map(lambda each: (each[0], sum(each))), max_size=8)


@given(taken=spans, skipped=spans)
def test_counts_are_those_of_looking_at_every_position(taken, skipped):
    end = max((stop for _, stop in taken), default=0)
    times = [sum(start <= at < stop for start, stop in taken) for at in range(end)]
    out = [any(start <= at < stop for start, stop in skipped) for at in range(end)]
    assert count_samples(taken, skipped) == replace(
        Samples(trained=sum(bool(n) and not o for n, o in zip(times, out, strict=True))),
        lost=sum(not n and not o for n, o in zip(times, out, strict=True)),
        repeated=sum(max(0, n - 1) for n in times),
        skipped=sum(out),
    )


UPDATES = {
    "event": "matrix_updates", "generation": 0, "rule": "muon/standard", "matrices": 2, "steps": 3, "wanted": 6,
    "computed": 6, "bound_seconds": 0.5, "ranks": [{"rank": 0, "computed": 6, "loads": {"w": 0.5}, "seconds": None}],
}  # fmt: skip


def updates_of(**changes):
    """Of a training that ranks say this of, and what was said of its samples."""
    lines = [{"event": "step", "generation": 0, "step": 1, "span": [0, 4]}, UPDATES | changes]
    found = read_training(["".join(json.dumps(each) + "\n" for each in lines).encode()])
    assert found.samples == Samples(trained=4), "the rest is known all the same"
    return found.matrix_updates


def test_updates_of_matrices_are_those_of_the_event():
    found = updates_of()
    assert (found.rule, found.wanted, found.computed, found.ranks[0].loads) == ("muon/standard", 6, 6, {"w": 0.5})
    assert found.late is None
    assert (found.repeats, updates_of(repeats=2).repeats) == (1, 2)
    late = {"buckets": 2, "largest_elements": 9, "are_blocks": True, "outstanding_bytes": 72.0}
    assert updates_of(late=late).late == LateUpdates(**late)


@pytest.mark.parametrize(
    "changes",
    [
        {"ranks": None}, {"matrices": "many"}, {"bound_seconds": float("nan")}, {"wanted": {"a": 1}},
        {"ranks": [{"rank": 0, "computed": 1, "loads": {"w": "much"}}]},
        {"ranks": [{"rank": 0, "computed": 1, "loads": {"w": float("inf")}}]},
        {"ranks": [{"rank": 0, "computed": 1, "seconds": -1.0}]}, {"ranks": [7]}, {"late": 7},
        {"late": {"buckets": 2, "largest_elements": 9, "are_blocks": True, "outstanding_bytes": float("nan")}},
        {"repeats": 0}, {"repeats": "2"},
        {"late": {"buckets": -2, "largest_elements": 9, "are_blocks": True, "outstanding_bytes": 72.0}},
    ],
)  # fmt: skip
def test_what_is_not_an_account_of_updates_is_not_known(changes):
    assert updates_of(**changes) is None


def test_a_model_with_a_kind_for_each_parameter_fills_no_record():
    loads = {f"{'very ' * 100}{number}": 1.0 + number for number in range(50)}
    found = updates_of(ranks=[{"rank": rank, "computed": 1, "loads": loads} for rank in range(300)])
    assert len(found.ranks) == found.MOST_RANKS
    assert max(len(each.loads) for each in found.ranks) <= 17
    assert max(len(name) for name in found.ranks[0].loads) <= 80
