"""The sources that the contract is held against."""

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from gangline.data.sources import open_source
from gangline.faults.s3_gateway import S3Gateway
from gangline.spec.config.site_tables import SourceTable
from gangline.storage.folder.store import FolderStore


class Stand:
    """A source, and how files get there."""

    def __init__(self, source, put):
        self.source, self.put = source, put


@pytest.fixture(params=["folder", "memory", "s3", pytest.param("hdfs", marks=pytest.mark.tools)])
def stand(request, tmp_path):
    if request.param == "folder":
        yield Stand(open_source("here", SourceTable(url=f"file://{tmp_path}/data"), {}), _writer(tmp_path / "data"))
    elif request.param == "memory":
        files = MemoryFileSystem()
        files.store.clear()
        yield Stand(
            open_source("here", SourceTable(url="memory://corpora"), {}),
            lambda path, data: files.pipe_file(f"/corpora/{path}", data),
        )
        files.store.clear()
    elif request.param == "s3":
        with S3Gateway(FolderStore(tmp_path / "store")) as gateway:
            table = SourceTable(url=S3Gateway.url(gateway.port), credentials="secret:env:KEY")
            store = FolderStore(tmp_path / "store")
            yield Stand(open_source("here", table, {"KEY": gateway.credentials}), store.put)
    else:
        hdfs = request.getfixturevalue("hdfs")
        table = SourceTable(url=hdfs.url + f"/{tmp_path.name}", hosts=(hdfs.data_address,))
        yield Stand(open_source("here", table, {}), lambda path, data: hdfs.put(f"{tmp_path.name}/{path}", data))


def _writer(folder):
    def put(path, data):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)

    return put
