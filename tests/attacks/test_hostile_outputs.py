"""What a rank left is read by its driver in bounded time and memory, and never leads it to what is another's."""

import json
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.line import repositories
from tests.line.conftest import Workspace

from gangline.errors import GanglineError, IntegrityError
from gangline.line.gangs.attempts import check_result, read_result
from gangline.line.gangs.logs import stored_lines
from gangline.line.results import training_result
from gangline.line.results.loss_curve import build_curve, by_step, losses_of
from gangline.line.results.profiles import profile_artifacts
from gangline.line.results.rank_times import read_parts, read_ranks, read_save_seconds
from gangline.line.results.training_result import read_metrics
from gangline.spec import output_limits
from gangline.spec.config.site import Site
from gangline.spec.gang.status import GangResult, JobResult, WeightsEvaluation, WeightsFile
from gangline.spec.measurements import PHASES
from gangline.spec.plan import Job
from gangline.spec.run_flags import stage
from gangline.storage.folder.store import FolderStore
from gangline.storage.objects import growing_file
from gangline.storage.objects.protocol import Blob, Entry

pytestmark = pytest.mark.row("F4")
ROOT = Path(__file__).parents[2]
GB, MIB = 10**9, 2**20
PREFIX = "runs/p/c/r"
PLAN = SimpleNamespace(
    role="train", run="r", run_prefix=PREFIX, output_prefix=PREFIX, world_size=2, jobs=(), worker=0,
    program=SimpleNamespace(task="t"),
)  # fmt: skip
NESTED = b"[" * 100_000
HUGE = b"9" * 4000
JUNK = (
    NESTED, b'{"a":' * 50_000, HUGE, b'{"step": ' + HUGE + b', "loss": 1}', b'{"step": 6, "loss": ' + HUGE + b"}",
    b'{"step": -1, "loss": 1}', b'{"step": true, "loss": 1}', b'{"step": 1e400, "loss": 1}', b'{"step": "1"}',
    b'{"step": 7, "loss": NaN}', b'{"step": 8, "loss": -Infinity}', b'{"step": 9, "loss": 1e400}', b'{"step": 10}',
    b'{"step": 11, "loss": "1"}', b'{"step": 12, "loss": [1]}', b'{"step": 13, "loss": true}', b"\xff\xfe", b"null",
    b'{"step": 14, "step_seconds": NaN, "mfu": 1e400, "tokens_per_second": -Infinity, "flops_per_second": {}}',
)  # fmt: skip


class Claims:
    """A store whose objects are as large as it says, and are made as they are read."""

    def __init__(self, sizes, make=lambda start, size: b"x" * size):
        self.url = "file:/claims"
        self._sizes, self._make = sizes, make
        self.read_bytes, self.largest = 0, 0

    def list(self, prefix, after="", limit=1000):
        keys = sorted(key for key in self._sizes if key.startswith(prefix) and key > after)
        return [Entry(key, self._sizes[key], 0.0) for key in keys[:limit]]

    def get(self, key, start=0, size=None):
        if key not in self._sizes:
            return None
        wanted = max(0, min(self._sizes[key] - start, self._sizes[key] if size is None else size))
        self.read_bytes += wanted
        self.largest = max(self.largest, wanted)
        return Blob(self._make(start, wanted), "etag", self._sizes[key])


class Reported(list):
    """Stands for a context: its store, and what it remembers."""

    def __init__(self, store):
        super().__init__()
        self.store = store

    def record_event(self, stage, kind, text):
        self.append((stage, kind, text))


@pytest.mark.parametrize("parts", [1, 40_000])
def test_ten_gigabytes_of_metrics_are_refused_before_a_byte_is_read(parts):
    size = 10 * GB // parts
    begins = range(0, 10 * GB, size)
    store = Claims({f"{PREFIX}/metrics{f'.{start:012d}' if start else ''}.jsonl": size for start in begins})
    with pytest.raises(IntegrityError, match=rf"{PREFIX}/metrics.jsonl: wanted at most 1\.1 GB.*found 10 GB; not read"):
        read_metrics(Reported(store), PLAN, 1)
    assert store.read_bytes == 0


def test_a_file_of_more_parts_than_anybody_writes_is_refused():
    store = Claims(
        {f"{PREFIX}/metrics.{start:012d}.jsonl": 1 for start in range(1, 70_000)} | {f"{PREFIX}/metrics.jsonl": 1}
    )
    with pytest.raises(IntegrityError, match="wanted at most 65536 parts"):
        read_metrics(Reported(store), PLAN, 1)
    assert store.read_bytes == 0


def test_ten_gigabytes_of_events_cost_the_record_what_they_report_and_no_more():
    store = Claims({f"{PREFIX}/ranks/{rank}.jsonl": 10 * GB for rank in range(2)})
    ctx, finished = Reported(store), SimpleNamespace(plan=PLAN, attempts=1)
    assert training_result._training(ctx, finished).samples is None
    ((_, kind, text),) = ctx
    assert kind == "events"
    assert f"{PREFIX}/ranks/0.jsonl: wanted at most 1.1 GB" in text
    assert store.read_bytes == 0
    assert read_ranks(store, PREFIX, world_size=2) == ()
    assert read_parts(store, PREFIX, world_size=2) == {}
    assert store.read_bytes <= 10 * 2**20


def test_a_line_of_a_hundred_megabytes_is_left_out_in_a_block_of_memory():
    row = b'{"step": 1, "loss": 2.0}\n'
    size = 100_000_000

    def make(start, wanted):
        text = b"x" * wanted if start + wanted < size else b"x" * (wanted - len(row) - 1) + b"\n" + row
        return text[:wanted]

    store = Claims({f"{PREFIX}/metrics.jsonl": size}, make)
    began = time.monotonic()
    rows, _ = read_metrics(Reported(store), PLAN, 1)
    assert losses_of(rows) == {1: 2.0}
    assert store.largest <= growing_file.BLOCK_BYTES
    assert time.monotonic() - began < 10


def test_more_lines_or_steps_than_a_training_has_are_refused(monkeypatch):
    monkeypatch.setattr(growing_file, "MOST_LINES", 50_000)
    store = Claims({f"{PREFIX}/metrics.jsonl": 60_000 * 3}, lambda _, size: (b"{}\n" * size)[:size])
    with pytest.raises(IntegrityError, match="wanted at most 50000 lines"):
        read_metrics(Reported(store), PLAN, 1)
    with pytest.raises(IntegrityError, match="wanted at most 100 steps"):
        by_step(({"step": step} for step in range(101)), most_steps=100)
    table = by_step({"step": step, f"name{step}": 1.0} for step in range(1000))
    assert len(table.names) == output_limits.MOST_NAMES


def test_lines_of_junk_are_left_out_and_the_others_count(tmp_path):
    store = FolderStore(tmp_path)
    rows = [json.dumps({"step": step, "loss": 4.0 - step}).encode() for step in (1, 2)]
    store.put(f"{PREFIX}/metrics-1.jsonl", b"\n".join((rows[0], *JUNK)) + b"\n")
    store.put(f"{PREFIX}/metrics.jsonl", b"\n".join((rows[1], *JUNK)) + b"\n")
    table, file = read_metrics(Reported(store), PLAN, 2)
    losses = losses_of(table)
    assert (losses[1], losses[2]) == (3.0, 2.0)
    assert set(losses) == {1, 2}
    assert {step for step, _ in table.column("loss")} == {1, 2, 7, 8, 9}
    drawn = build_curve(losses, steps=10, base=None, floor_percent=0.1, origin="")
    assert [point.value for point in drawn.points] == [3.0, 2.0]
    again, _ = read_metrics(Reported(store), PLAN, 2)
    assert list(again) == list(table)
    assert file.size_bytes < 10_000
    for name in ("step_seconds", "mfu", "tokens_per_second", "flops_per_second"):
        assert training_result._median(table, name) is None


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
KINDS = st.sampled_from(["started", "step", "saved", "resumed", "healed", "non_finite", "other"])
FIELDS = st.sampled_from([
    "generation", "step", "span", "seconds", "phases", "peak_bytes", "node", "blocking_seconds", "wire_bytes",
    "samples",
    "answer", "source", "cursor", "peer_bytes",
])  # fmt: skip
EVENTS = st.lists(
    st.builds(lambda kind, rest: {**rest, "event": kind}, KINDS | VALUES, st.dictionaries(FIELDS, VALUES))
)


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=150)
@given(events=EVENTS, peers=EVENTS)
def test_no_event_of_a_rank_breaks_its_driver(events, peers):
    texts = {
        f"{PREFIX}/ranks/{rank}.jsonl": "".join(json.dumps(each) + "\n" for each in reported).encode()
        for rank, reported in enumerate((events, peers))
    }
    store = SimpleNamespace(
        list=lambda prefix, after="", _limit=1000: [
            Entry(key, len(text), 0.0) for key, text in texts.items() if key.startswith(prefix) and key > after
        ],
        get=lambda key, start=0, size=None: Blob(texts[key][start:][:size], "", len(texts[key])),
    )
    training_result._training(Reported(store), SimpleNamespace(plan=PLAN, attempts=1))
    for row in read_ranks(store, PREFIX, world_size=2):
        assert set(row.phases) <= set(PHASES)
    read_parts(store, PREFIX, world_size=2)
    read_save_seconds(store, PREFIX)


def test_what_is_nested_or_huge_is_not_a_result(tmp_path):
    store = FolderStore(tmp_path)
    for text in (
        NESTED,
        b'{"final_step": ' + HUGE + b"}",
        b'{"jobs": [{"seed": 1, "step": 1, "metrics": {"a": ' + HUGE + b"}}]}",
    ):
        store.put(f"{PREFIX}/result.json", text)
        with pytest.raises(IntegrityError):
            read_result(SimpleNamespace(store=store), PLAN)
    claims = Claims({f"{PREFIX}/result.json": GB})
    with pytest.raises(IntegrityError, match=r"result\.json: wanted at most 34 MB, found 1.0 GB; not read"):
        read_result(SimpleNamespace(store=claims), PLAN)
    assert claims.read_bytes <= output_limits.MOST_RESULT_BYTES


@pytest.mark.parametrize(
    "checkpoint",
    [
        "runs/p/c/r2/checkpoints/step-00000001", "runs/q/c/r/checkpoints/step-00000001", "models/p", "", "/", "..", ".",
        f"{PREFIX}", f"{PREFIX}/", f"{PREFIX}/../r2/checkpoints/step-00000001", f"{PREFIX}x/checkpoints/step-00000001",
        f"/{PREFIX}/checkpoints/step-00000001", f"{PREFIX}/a b", f"{PREFIX}//x", f"{PREFIX}/\x1b[31m", f"x/{PREFIX}/y",
        f"{PREFIX}/x\n", f"{PREFIX}/" + "x" * 1000,
    ],
)  # fmt: skip
def test_a_result_names_no_checkpoint_of_another(checkpoint):
    with pytest.raises(IntegrityError, match="wanted a checkpoint below runs/p/c/r/"):
        check_result(GangResult(checkpoint=checkpoint), PLAN, key="k")


def test_a_result_names_its_own_checkpoint_or_the_one_it_was_given():
    given = "runs/p/c0/r0/checkpoints/step-00000009"
    plan = SimpleNamespace(**{**vars(PLAN), "jobs": (Job(seed=1, checkpoint=given),)})
    for checkpoint in (f"{PREFIX}/checkpoints/step-00000001", f"{PREFIX}/program/step-00000001", given, None):
        check_result(GangResult(checkpoint=checkpoint), plan, key="k")
    with pytest.raises(IntegrityError):
        check_result(GangResult(checkpoint=given), PLAN, key="k")


def evaluated(*evaluations):
    return GangResult(jobs=(JobResult(seed=1, step=1, evaluations=evaluations),))


@pytest.mark.parametrize(
    "result",
    [
        GangResult(role="evaluate"), GangResult(final_step=-1), GangResult(final_step=2**60),
        GangResult(jobs=tuple(JobResult(seed=seed, step=1) for seed in range(1001))),
        GangResult(jobs=(JobResult(seed=1, step=1, metrics={str(each): 1.0 for each in range(257)}),)),
        GangResult(jobs=(JobResult(seed=1, step=1, metrics={"x" * 201: 1.0}),)),
        GangResult(jobs=(JobResult(seed=1, step=-1),)), GangResult(metric_units={"x" * 201: ""}),
        GangResult(jobs=(JobResult(seed=1, step=1, metrics={"loss": float("nan")}),)),
        evaluated(*[WeightsEvaluation(step=1, metrics={})] * 65), evaluated(WeightsEvaluation(step=-1, metrics={})),
        evaluated(WeightsEvaluation(step=1, metrics={"loss": float("inf")})),
        evaluated(WeightsEvaluation(step=1, metrics={str(each): 1.0 for each in range(257)})),
        evaluated(WeightsEvaluation(step=1, metrics={}, weights=dict.fromkeys(map(str, range(257)), WeightsFile()))),
        evaluated(WeightsEvaluation(step=1, metrics={}, weights={"x" * 201: WeightsFile()})),
        evaluated(WeightsEvaluation(step=1, metrics={}, weights={"w": WeightsFile(sha256="\x1b[31m")})),
    ],
)  # fmt: skip
def test_a_result_that_holds_more_than_a_result_does_is_refused(result):
    with pytest.raises(IntegrityError):
        check_result(result, PLAN, key="k")


def test_of_a_log_of_a_gigabyte_the_beginning_is_shown():
    store = Claims({f"{PREFIX}/logs/0.log": GB}, lambda _, size: (b"line\n" * size)[:size])
    *_, last = stored_lines(store, PREFIX, "train", 0)
    assert "has 1.0 GB, shown are its first 8.4 MB" in last
    assert store.read_bytes == output_limits.MOST_LOG_BYTES


def test_profiles_are_hashed_in_blocks_and_large_ones_left_out():
    folder = f"{PREFIX}/profiles/1-2"
    store = Claims(
        {f"{folder}/rank-0.json": 1000, f"{folder}/rank-0.trace.json.gz": 60 * 2**20}
        | {f"{folder}/rank-{rank}.trace.json.gz": 10 * GB for rank in (1, 2)}
    )
    found, left_out = profile_artifacts(store, PREFIX)
    assert [each.size_bytes for each in found] == [1000, 60 * 2**20]
    assert store.largest <= 8 * 2**20
    assert len(left_out) == 2
    assert "rank-1.trace.json.gz: wanted at most 67 MB, found 10 GB" in left_out[0]


HOSTILE_PROGRAM = """
junk = {junk!r}
for name in ("metrics.jsonl", "ranks/0.jsonl"):
    file = out / name
    file.parent.mkdir(exist_ok=True)
    with file.open("ab") as lines:
        for each in junk:
            lines.write(each + b"\\n")
with (out / "ranks/0.jsonl").open("ab") as lines:
    for each in ({{"event": "step"}}, {{"event": "step", "step": [], "span": 1, "generation": "x"}}):
        lines.write(json.dumps(each).encode() + b"\\n")
"""


@pytest.fixture
def workspace(tmp_path):
    repo = repositories.make_repository(tmp_path / "repo")
    return Workspace(repo, Site(), {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")})


def test_a_run_whose_rank_writes_junk_ends_as_any_other(workspace):
    program = repositories.PROGRAM + HOSTILE_PROGRAM.format(junk=JUNK)
    repositories.commit(workspace.repo, {"answer.py": program})
    record = workspace.run()
    assert record.run.verdict == "passed"
    assert stage(record, "train").state == "done"
    assert record.curve.points[-1].value == 1.0
    assert [event.kind for event in record.events if event.kind == "events"] == ["events"]


@pytest.mark.parametrize(
    "result",
    [
        {"role": "train", "final_step": 4, "checkpoint": "runs/other/c/r/checkpoints/step-00000001"},
        {"role": "train", "final_step": 4, "jobs": [{"seed": 1, "step": 4, "metrics": {"eval_loss": float("nan")}}]},
    ],
)
def test_a_run_whose_rank_says_what_it_may_not_ends_refused(workspace, result):
    text = f'(out / "result.json").write_text({json.dumps(result)!r})\n'
    repositories.commit(workspace.repo, {"answer.py": repositories.PROGRAM + text})
    with pytest.raises(GanglineError) as caught:
        workspace.run()
    assert caught.value.exit_code in (50, 60)
    (record,) = workspace.records()
    assert record.run.state == "ended"
    assert record.run.verdict in ("failed", "refused")


READS = """
import sys
from tests.attacks.test_hostile_outputs import PLAN, PREFIX, Claims, Reported
from tests.faults.instruments.memory import peak_bytes
from gangline.line.results.training_result import read_metrics
from gangline.errors import IntegrityError

shape, size = sys.argv[1], int(sys.argv[2])
def make(start, wanted):
    if shape == "line":
        return b"x" * wanted
    row = b'{"step": %d, "loss": 2.5, "tokens_per_second": 1e4, "step_seconds": 0.1, "mfu": 0.4, "x": "'
    steps = range(start // 250, (start + wanted) // 250 + 1)
    rows = b"".join((row % (step + 10**11)).ljust(247, b"y") + b'"}\\n' for step in steps)
    return rows[start % 250:][:wanted]
before = peak_bytes()
try:
    rows, _ = read_metrics(Reported(Claims({f"{PREFIX}/metrics.jsonl": size}, make)), PLAN, 1)
    print(len(rows), end=" ")
except IntegrityError:
    print("refused", end=" ")
print(peak_bytes() - before)
"""


@pytest.mark.parametrize(
    ("shape", "size", "found", "most_bytes"),
    [
        ("rows", 10 * GB, "refused", 2 * MIB), ("line", 200_000_000, "0", 40 * MIB),
        ("rows", 12_500_000, "50000", 60 * MIB),
        pytest.param("rows", 250_000_000, "1000000", 300 * MIB, marks=pytest.mark.slow),
        pytest.param("line", 2**30, "0", 40 * MIB, marks=pytest.mark.slow),
        pytest.param("rows", 2**30, "refused", 600 * MIB, marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_reading_metrics_takes_bounded_memory(shape, size, found, most_bytes):
    command = [sys.executable, "-c", READS, shape, str(size)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, timeout=200)
    rows, grown = done.stdout.split()
    assert rows == found
    assert int(grown) < most_bytes, f"{int(grown) / MIB:.0f} MiB"
