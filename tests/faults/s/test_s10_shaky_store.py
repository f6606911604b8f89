"""S10: 503, 500 after the commit, resets after the answer: every checkpoint is there once, and whole."""

from secrets import token_hex

import pytest
from minio import Minio
from minio.commonconfig import ENABLED
from minio.versioningconfig import VersioningConfig
from tests.contracts.storage.servers import S3Server
from tests.faults.s.shards import PREFIX, Training, assert_reads

from gangline.faults.proxy import FaultProxy, FaultRule

pytestmark = [pytest.mark.row("S10", full="200 saves, 1,000 writes"), pytest.mark.tools]
SHAKY = (
    FaultRule(action="answer", probability=0.1),
    FaultRule(action="answer", direction="down", probability=0.05, status=500),
    FaultRule(action="reset", direction="down", probability=0.05),
)


@pytest.mark.parametrize("saves", [4, pytest.param(200, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
def test_checkpoints_over_a_shaky_line_are_whole_and_written_once(minio_server, seed, saves):
    bucket = f"versions-{token_hex(4)}"
    client = Minio(f"127.0.0.1:{minio_server.port}", minio_server.access_key, minio_server.secret_key, secure=False)
    client.make_bucket(bucket)
    client.set_bucket_versioning(bucket, VersioningConfig(ENABLED))
    other = S3Server(
        "minio", minio_server.folder, bucket=bucket, secret_key=minio_server.secret_key, port=minio_server.port
    )
    with FaultProxy("127.0.0.1", minio_server.port, rules=SHAKY, seed=seed) as proxy:
        training = Training(other.store(endpoint=proxy.endpoint, deadline_seconds=30), keep=saves, elements=1000)
        for _ in range(saves):
            assert training.save(wait=True) is None
        assert len(proxy.strikes) >= saves / 2
    assert_reads(other.store(), training, saves, elements=1000)
    names = [each.object_name for each in client.list_objects(bucket, recursive=True, include_version=True)]
    written = sorted(name for name in names if f"{PREFIX}/step-" in name)
    assert len(written) == len(set(written)) == 4 * saves
