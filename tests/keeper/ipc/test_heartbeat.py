"""The 64 bytes between a rank and its watchdog."""

import subprocess
import sys
import time

from gangline.keeper.ipc.heartbeat import NO_STEP, HeartbeatReader, HeartbeatWriter, peek


def test_reader_sees_every_word_of_the_writer(tmp_path):
    path = tmp_path / "0"
    reader = HeartbeatReader(path)
    assert reader.read() is None
    writer = HeartbeatWriter(path)
    assert reader.read().step == NO_STEP
    writer.beat(500, "resume")
    writer.beat(501, "forward-and-some-more")
    beat = reader.read()
    assert (beat.step, beat.steps_taken, beat.phase) == (501, 1, "forward-and-some")
    assert 0 <= time.monotonic() - beat.mono < 5
    assert path.stat().st_size == 64
    assert peek(path) == beat
    writer.close()
    reader.close()


def test_expect_never_shortens_an_earlier_word(tmp_path):
    writer = HeartbeatWriter(tmp_path / "0")
    writer.expect(100)
    writer.expect(1)
    writer.beat(phase="checkpoint")
    assert peek(tmp_path / "0").expect_until > time.monotonic() + 50
    writer.beat(1)
    assert peek(tmp_path / "0").expect_until == 0, "the step is done, patience is as usual again"
    writer.close()


def test_new_reader_forgets_the_generation_before(tmp_path):
    old = HeartbeatWriter(tmp_path / "0")
    reader = HeartbeatReader(tmp_path / "0")
    old.beat(7)
    assert reader.read() is None
    old.close()
    reader.close()


def test_any_program_beats_without_torch_and_without_a_gang(tmp_path):
    program = (
        "import sys; from gangline.train import heartbeat; heartbeat.beat(3, 'own'); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, env={"GANGLINE_HEARTBEAT": str(tmp_path / "0")})
    assert peek(tmp_path / "0").step == 3
    subprocess.run([sys.executable, "-c", program], check=True, env={})
