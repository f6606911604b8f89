"""TensorBoard's file and offline runs of Weights & Biases, read back: the numbers of the events, in float32."""

import json
import os
import struct
import subprocess
import sys
import time
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from tests.tools.__main__ import TOOLS, tools_folder
from tests.trackers.events import evaluated, step, steps

from gangline.spec.config.site_tables import TrackTable
from gangline.trackers import tensorboard
from gangline.trackers.operations import points_of
from gangline.trackers.protocol import Point, TrackedRun, TrackerError, WriterSettings
from gangline.trackers.writer_process import WriterFailed, WriterProcess

RUN = TrackedRun(
    id="cheap-9f31c2a0-k7q2mx", project="cheap", experiment="cheap", name="cheap-9f31c2a0-k7q2mx", status="running",
    started_ms=1_764_385_200_000, parameters={"train.seed": "1"}, tags={"gangline.commit": "9f31c2a0"},
)  # fmt: skip
ENDED = replace(RUN, status="finished", ended_ms=1_764_385_300_000, tags=RUN.tags | {"gangline.verdict": "passed"})
EVENTS = [*steps(40, learning_rate=0.1), evaluated(40, eval_loss=2.3)]


def points(events):
    return [point for event in events for point in points_of(event)]


def float32(value):
    return struct.unpack("f", struct.pack("f", value))[0]


def in_float32(written):
    return sorted((point.metric, point.step, float32(point.value)) for point in written)


class TensorBoard:
    """TensorBoard's file in a folder, by its writer in this process, which a test leaves as a kill does."""

    def __init__(self, folder):
        self.writer = tensorboard.open_writer(WriterSettings(kind="tensorboard", path=str(folder)))

    def write(self, events, *, ends=True, run=RUN):
        self.writer.begin(run)
        self.writer.write(points(events))
        if ends:
            self.writer.finish(ENDED)
        self.writer.close()


class Files:
    """A tracker of files in a folder, written by its real child."""

    def __init__(self, kind, folder):
        self.table = TrackTable(kind=kind, mode="offline", path=str(folder))
        self.settings = WriterSettings(kind=kind, mode="offline", path=str(folder), token="hush" * 10)

    def open(self):
        process = WriterProcess(self.settings, table=self.table, environ=os.environ)
        process.open()
        return process

    def write(self, events, *, ends=True, run=RUN):
        process = self.open()
        try:
            process.begin(run)
            process.write(points(events))
            if ends:
                process.finish(ENDED)
                process.close()
        finally:
            process.end()


def scalars(folder):
    """(tag, step, value) by the rule of TensorBoard: a mark purges what has its step or a later one."""
    from tensorboardX.crc32c import crc32c
    from tensorboardX.proto import event_pb2
    from tensorboardX.record_writer import masked_crc32c

    assert crc32c(b"123456789") == 0xE3069283
    (file,) = folder.rglob("*tfevents*")
    data, values = file.read_bytes(), []
    while data:
        (size,) = struct.unpack("<Q", data[:8])
        body = data[12 : 12 + size]
        assert struct.unpack("<I", data[8:12])[0] == masked_crc32c(data[:8])
        assert struct.unpack("<I", data[12 + size : 16 + size])[0] == masked_crc32c(body)
        data = data[16 + size :]
        event = event_pb2.Event.FromString(body)
        if event.HasField("session_log"):
            values = [each for each in values if each[1] < event.step]
        values += [(v.tag, event.step, v.simple_value) for v in event.summary.value if v.HasField("simple_value")]
    return sorted(values)


def wandb_records(file):
    """Records of an offline run: the log format of LevelDB, checksums verified, in the library's own messages.

    The library reads these files in a program of its own since 0.28, which has no way to print them.
    """
    from wandb.proto import wandb_internal_pb2

    data = file.read_bytes()
    assert data[:4] == b":W&B"
    at, whole = 7, b""
    while at + 7 <= len(data):
        if (left := 32768 - at % 32768) < 7:
            at += left
            continue
        checksum, size, kind = struct.unpack("<IHB", data[at : at + 7])
        body = data[at + 7 : at + 7 + size]
        if len(body) < size:
            return  # cut off by a kill
        assert checksum == zlib.crc32(bytes([kind]) + body)
        at += 7 + size
        whole += body
        if kind in (1, 4):  # a full record, or the last piece of one
            yield wandb_internal_pb2.Record.FromString(whole)
            whole = b""


def key_of(item):
    return item.key or ".".join(item.nested_key)


def history(folder):
    """(rows by step, configuration) of the offline folders of a run; of a step that is there twice the first counts."""
    rows, config = {}, {}
    for file in sorted(folder.rglob("*.wandb")):
        for record in wandb_records(file):
            if record.HasField("history"):
                row = {key_of(item): json.loads(item.value_json) for item in record.history.item}
                rows.setdefault(row["_step"], row)
            for item in (*record.run.config.update, *record.config.update):
                config[key_of(item)] = json.loads(item.value_json)
    return rows, config


def wandb_points(folder):
    rows, _ = history(folder)
    return sorted((name, step, value) for step, row in rows.items() for name, value in row.items() if name[0] != "_")


@pytest.mark.row("TB3")
def test_tensorboard_has_the_numbers_of_the_events_in_float32(tmp_path):
    TensorBoard(tmp_path).write(EVENTS)
    assert scalars(tmp_path) == in_float32(points(EVENTS))


@pytest.mark.row("TB3")
def test_an_offline_run_has_the_numbers_the_times_and_the_configuration(tmp_path):
    Files("wandb", tmp_path).write(EVENTS)
    rows, config = history(tmp_path)
    assert wandb_points(tmp_path) == sorted((point.metric, point.step, point.value) for point in points(EVENTS))
    assert {round(1000 * row["_timestamp"]) for row in rows.values()} <= {point.time_ms for point in points(EVENTS)}
    assert config["train.seed"] == "1"
    assert config["gangline.verdict"] == "passed"
    assert config["gangline.project"] == "cheap"
    private = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert b"hushhush" not in private
    assert [
        path.name for path in tmp_path.rglob("*") if path.name in ("requirements.txt", "output.log", "diff.patch")
    ] == []


@pytest.mark.row("TB1")
def test_writers_that_are_killed_leave_one_file_with_all_points(tmp_path):
    TensorBoard(tmp_path).write(EVENTS[:5], ends=False)
    before = scalars(tmp_path)
    TensorBoard(tmp_path).write(EVENTS[:2], ends=False)
    assert scalars(tmp_path) == before  # as long as the new one has less
    TensorBoard(tmp_path).write(EVENTS[:30], ends=False)
    TensorBoard(tmp_path).write(EVENTS)
    assert scalars(tmp_path) == in_float32(points(EVENTS))
    assert len(list(tmp_path.rglob("*tfevents*"))) == 1


@pytest.mark.row("TB1")
def test_a_step_that_is_done_again_takes_the_place_of_what_came_after_it(tmp_path):
    again = [step(number, generation=2, loss=9.0, time=1_764_385_300.0) for number in (3, 4)]
    TensorBoard(tmp_path).write([*steps(6), *again], ends=False)
    assert scalars(tmp_path) == in_float32(points([*steps(2), *again]))


READER = """\
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
reader = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0})
reader.Reload()
print(json.dumps([[tag, each.step, each.value] for tag in reader.Tags()["scalars"] for each in reader.Scalars(tag)]))
"""


@pytest.mark.tools
@pytest.mark.row("TB3")
def test_tensorboard_itself_reads_the_numbers_of_the_last_generation(tmp_path):
    tool = next(tool for tool in TOOLS if tool.name == "tensorboard")
    if not tool.is_there(tools_folder()):
        pytest.skip(f"tensorboard is not in {tools_folder()}: make tools builds it")
    again = [step(number, generation=2, loss=9.0, time=1_764_385_300.0) for number in (3, 4)]
    TensorBoard(tmp_path).write([*steps(6), *again], ends=False)
    python = tool.program(tools_folder()).with_name("python")
    folder = str(next(tmp_path.rglob("*tfevents*")).parent)
    done = subprocess.run([python, "-c", READER, folder], capture_output=True, text=True, check=True)
    assert sorted(map(tuple, json.loads(done.stdout))) == in_float32(points([*steps(2), *again]))


@pytest.mark.long
@pytest.mark.row("TB1")
def test_offline_folders_of_killed_writers_are_superseded_at_the_end(tmp_path):
    files = Files("wandb", tmp_path)
    files.write(EVENTS[:20], ends=False)
    time.sleep(1.1)  # the library names folders by the second
    files.write(EVENTS)
    assert wandb_points(tmp_path) == sorted((point.metric, point.step, point.value) for point in points(EVENTS))
    assert len(list(tmp_path.rglob("*.wandb"))) == 1


def test_a_name_leads_to_no_other_folder_and_a_number_too_large_is_left_out(tmp_path):
    run = replace(RUN, experiment="../../up/..")
    writer = TensorBoard(tmp_path / "in").writer
    writer.begin(run)
    writer.write([Point("loss", 1, 1, 1e300), Point("loss", 2, 2, 1.0)])
    found = writer.look(run)
    writer.close()
    assert scalars(tmp_path / "in") == [("loss", 2, 1.0)]
    assert [path.name for path in tmp_path.iterdir()] == ["in"]
    assert (found.step, found.time_ms) == (2, 2)


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(TrackerError, match=r"wanted to write .*found: Not a directory"):
        TensorBoard(tmp_path / "file").writer.begin(RUN)


def test_a_library_that_is_missing_is_named(tmp_path):
    table = TrackTable(kind="wandb", python="/usr/bin/python3")
    process = WriterProcess(WriterSettings(kind="wandb"), table=table, environ=os.environ)
    with pytest.raises(WriterFailed, match="No module named 'wandb'") as caught:
        process.open()
    process.end()
    assert caught.value.is_refused


def test_a_writer_ends_with_its_driver(tmp_path):
    """A writer that is idle ends at once."""
    code = (
        "import os, sys\n"
        "from gangline.spec.config.site_tables import TrackTable\n"
        "from gangline.trackers.protocol import WriterSettings\n"
        "from gangline.trackers.writer_process import WriterProcess\n"
        f"table = TrackTable(kind='tensorboard', path={str(tmp_path)!r})\n"
        f"settings = WriterSettings(kind='tensorboard', path={str(tmp_path)!r})\n"
        "process = WriterProcess(settings, table=table, environ=os.environ)\n"
        "process.open()\n"
        "print(process._process.pid, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    pid = int(done.stdout)
    deadline = time.monotonic() + 20
    while Path(f"/proc/{pid}/status").exists() and "Z (zombie)" not in Path(f"/proc/{pid}/status").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
