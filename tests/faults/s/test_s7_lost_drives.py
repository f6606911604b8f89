"""S7: drives of an erasure-coded store are wiped: checkpoints read on, saves go on, drives heal."""

import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from minio import Minio
from tests.contracts.launcher.gangs import poll
from tests.contracts.storage.servers import S3Server
from tests.faults.s.shards import Training, assert_reads

pytestmark = [
    pytest.mark.row("S7", full="two of four drives at once, three one after the other"),
    pytest.mark.tools,
    pytest.mark.timeout(600),
]
DRIVES, ELEMENTS = 4, 200_000
"""Of four drives two may go for reads, one for writes; a shard is too large to be kept beside its metadata."""


@dataclass
class ErasureCoded(S3Server):
    """MinIO over four folders that stand for drives."""

    def drive(self, number: int) -> Path:
        return self.folder / f"drive-{number}"

    def wipe(self, *numbers: int) -> None:
        for number in numbers:
            shutil.rmtree(self.drive(number))

    def lose(self, *numbers: int) -> None:
        """They do not come back: a file stands where the folder was."""
        for number in numbers:
            self.wipe(number)
            self.drive(number).touch()

    def parts(self, number: int) -> int:
        """Pieces of shards on one drive."""
        return len(list((self.drive(number) / self.bucket).rglob("*.safetensors/xl.meta")))

    def make_bucket(self) -> None:
        client = Minio(f"127.0.0.1:{self.port}", self.access_key, self.secret_key, secure=False)
        if not client.bucket_exists(self.bucket):
            client.make_bucket(self.bucket)

    def _command(self) -> list[str]:
        *words, _ = super()._command()
        return [*words, *(str(self.drive(number)) for number in range(DRIVES))]

    def _environment(self) -> dict[str, str]:
        return super()._environment() | {"MINIO_CI_CD": "1"}  # drives may lie on the root file system


@pytest.fixture
def server(tmp_path):
    server = ErasureCoded("minio", tmp_path).start()
    server.make_bucket()
    yield server
    server.stop()


def test_reads_and_saves_survive_a_wiped_drive(server, seed):
    store = server.store("drives", deadline_seconds=5)
    training = Training(store, elements=ELEMENTS)
    assert training.save(wait=True) is None
    server.wipe(seed % DRIVES)
    assert_reads(store, training, 1, elements=ELEMENTS)
    assert training.save(wait=True) is None
    assert_reads(store, training, 2, elements=ELEMENTS)


@pytest.mark.slow
def test_reads_survive_the_loss_of_as_many_drives_as_there_is_parity_and_saves_say_that_they_fail(server):
    store = server.store("drives", deadline_seconds=5)
    training = Training(store, elements=ELEMENTS)
    assert training.save(wait=True) is None
    server.lose(0, 1)
    assert_reads(store, training, 1, elements=ELEMENTS)
    assert training.save(wait=True) is not None, "two of four drives are no quorum"
    assert_reads(store, training, 1, elements=ELEMENTS)


@pytest.mark.parametrize("saves", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_drives_wiped_one_after_the_other_are_healed(server, saves):
    """Without healing there would be one drive left at the end."""
    store = server.store("drives", deadline_seconds=5)
    training = Training(store, elements=ELEMENTS, keep=saves)
    for _ in range(saves):
        assert training.save(wait=True) is None
    for number in range(DRIVES - 1):
        server.wipe(number)
        began = time.monotonic()
        poll(lambda drive=number: server.parts(drive) == saves, 200)
        print(f"S7 {saves} shards healed in {time.monotonic() - began:.0f} s")
    assert_reads(store, training, saves, elements=ELEMENTS)
    assert training.save(wait=True) is None
