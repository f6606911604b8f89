"""S1: a save whose shard is cut off at any 64 KiB of 16 MiB: readers see the checkpoint before, then the next one."""

import resource
from contextlib import contextmanager
from random import Random
from secrets import token_hex

import pytest
from tests.faults.s.shards import SHARD_BYTES, STEP_BYTES, Training, assert_reads

from gangline.faults.proxy import FaultProxy, FaultRule
from gangline.storage.folder.store import FolderStore

pytestmark = pytest.mark.row("S1", full="256 cuts in each of three stores")
ALL_CUTS = range(SHARD_BYTES // STEP_BYTES)
AWAY_AFTERWARDS = [FaultRule(action="answer", on_request=number) for number in range(2, 100)]


@contextmanager
def files_end_at(size_bytes):
    """The system lets no file grow beyond; what is written up to there is written."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(
    "number", [3, pytest.param(len(ALL_CUTS), marks=[pytest.mark.slow, pytest.mark.timeout(3600)])]
)
def test_shard_cut_in_a_folder_is_never_a_mix(tmp_path, seed, number):
    store = FolderStore(tmp_path / "store")
    training = Training(store)
    assert training.save() is None
    good = training.step
    for cut in sorted(Random(seed).sample(ALL_CUTS, number)):
        with files_end_at(cut * STEP_BYTES):
            assert "File too large" in training.save()
        assert_reads(store, training, good)
        assert training.save() is None
        good = training.step
        assert_reads(store, training, good)


@pytest.mark.tools
@pytest.mark.parametrize(
    "number", [2, pytest.param(len(ALL_CUTS), marks=[pytest.mark.slow, pytest.mark.timeout(3600)])]
)
def test_shard_cut_on_its_way_to_a_server_is_never_a_mix(s3_server, seed, number):
    prefix = f"cut/{token_hex(8)}"
    reader = s3_server.store(prefix)
    with FaultProxy("127.0.0.1", s3_server.port) as proxy:
        training = Training(s3_server.store(prefix, endpoint=proxy.endpoint, deadline_seconds=0.5))
        assert training.save(wait=True) is None
        good = training.step
        for cut in sorted(Random(seed).sample(ALL_CUTS, number)):
            proxy.set_rules(FaultRule(action="cut", after_bytes=cut * STEP_BYTES), *AWAY_AFTERWARDS)
            assert "no answer" in training.save()
            proxy.set_rules()
            assert_reads(reader, training, good)
            assert training.save(wait=True) is None
            good = training.step
            assert_reads(reader, training, good)
