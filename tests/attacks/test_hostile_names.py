"""A gang may call its objects as it likes: nobody else's listing breaks or hangs by it."""

from secrets import token_hex

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.line import repositories
from tests.line.conftest import Workspace

from gangline.errors import StorageError, UsageError
from gangline.faults.s3_gateway import S3Gateway, S3Response, listing_document
from gangline.line.record.runs import find_run, list_runs
from gangline.line.run.sweep import sweep
from gangline.spec.config.site import Site, StoreTable
from gangline.storage.folder.store import FolderStore
from gangline.storage.objects.keys import check_key, is_key
from gangline.storage.objects.multipart import abort_left_uploads
from gangline.storage.objects.protocol import Entry, list_all
from gangline.storage.open import open_store
from gangline.storage.s3.object_requests import S3Upload
from gangline.storage.s3.run_credentials import scoped_credentials

pytestmark = pytest.mark.row("C8")
ODD = (
    "\x01", "a\x1b[31m", "b\ufffe", "b\uffff", "line\nbreak", "spa ce", "plus+", "per%41cent", "amp&lt;", "é",
    "del\x7f", "back\\slash", "til~de", "star*", "what?", "\u202egnp", "quo\"te'", "<Key>x</Key>", "]]>",
)  # fmt: skip
OWN = "runs/p/c/mine/gang"


@pytest.mark.tools
def test_odd_objects_of_one_gang_are_left_out_of_everybodys_listings(s3_server):
    prefix = f"odd/{token_hex(4)}"
    store = s3_server.store(prefix)
    gang = gang_store(s3_server, prefix)
    for name in ODD:
        gang.wire.send("PUT", f"{prefix}/{OWN}/{name}", body=b"x")
    good = ["runs/p/c/a/record.json", f"{OWN}/metrics.jsonl", "runs/p/c/zz/record.json"]
    for key in good:
        store.put(key, b"{}")
    assert [each.key for each in list_all(store, "runs/")] == sorted(good)
    assert [each.key for each in list_all(gang, f"{OWN}/")] == [f"{OWN}/metrics.jsonl"]
    assert [each.key for each in list_all(store, "", page=1)] == sorted(good)


def gang_store(server, prefix):
    """As a rank opens it; a server that lends nothing gives it the site's own."""
    lent = scoped_credentials(server.store(prefix), write=OWN)
    return server.store(prefix, credentials=lent.text) if lent else server.store(prefix)


@pytest.mark.tools
def test_odd_uploads_and_notes_of_a_gang_are_aborted_with_the_others(minio_server):
    prefix = f"odd/{token_hex(4)}"
    store, gang = minio_server.store(prefix), gang_store(minio_server, prefix)
    for name in ODD:
        S3Upload(gang.wire, f"{prefix}/", f"{OWN}/{name}").part(b"x")
        gang.wire.send("PUT", f"{prefix}/.uploads~/{OWN}/{name}")
        gang.wire.send("PUT", f"{prefix}/.uploads~/{OWN}/never-{name}/~0")
    left = abort_left_uploads(store, "runs/", older_than_seconds=0)
    assert {each.key for each in left} >= {f"{OWN}/{name}" for name in ODD}
    assert store.open_uploads() == []
    assert abort_left_uploads(store, "runs/", older_than_seconds=0) == []


@pytest.mark.tools
def test_a_store_with_odd_objects_finds_its_runs_and_is_swept(s3_server, tmp_path):
    prefix = f"odd-{token_hex(4)}"
    table = StoreTable(url=f"s3://{s3_server.bucket}/{prefix}", endpoint=s3_server.endpoint, credentials="secret:env:K")
    environ = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config"), "K": s3_server.credentials}
    workspace = Workspace(repositories.make_repository(tmp_path / "repo"), Site(store=table), environ)
    record = workspace.run(until="plan")
    for name in ODD:
        for folder in (f"{record.prefix}/gang", "runs/a/c/r/gang"):
            workspace.store.wire.send("PUT", f"{prefix}/{folder}/{name}", body=b"x")
    assert find_run(workspace.store, record.run.id).run.id == record.run.id
    assert [each.run.id for each in list_runs(workspace.store)] == [record.run.id]
    assert sweep(workspace.repo, **workspace.where) == []


class Circles(S3Gateway):
    """Lists as a server does that writes one sign for all those it has no sign for."""

    pages = 0

    def _list(self, _request):
        self.pages += 1
        found = [Entry("a\N{REPLACEMENT CHARACTER}", 1, 0.0)]
        return S3Response(200, listing_document("store", found if self.pages < 50 else []))


def test_a_listing_that_does_not_continue_ends_as_an_error(tmp_path):
    with Circles(FolderStore(tmp_path / "store")) as gateway:
        store = open_store(S3Gateway.url(gateway.port), credentials=gateway.credentials)
        with pytest.raises(StorageError, match="does not continue after its last name"):
            store.list("")


class NoXml(S3Gateway):
    def _list(self, _request):
        return S3Response(200, b"<ListBucketResult><Key>\x01</Key></ListBucketResult>")


def test_a_listing_that_is_not_a_document_is_an_error_of_the_store(tmp_path):
    with NoXml(FolderStore(tmp_path / "store")) as gateway:
        store = open_store(S3Gateway.url(gateway.port), credentials=gateway.credentials)
        for call in (lambda: store.list(""), lambda: store.open_uploads("")):
            with pytest.raises(StorageError, match="as S3 XML"):
                call()


def test_odd_files_of_a_folder_are_left_out(tmp_path):
    store = FolderStore(tmp_path / "store")
    store.put("runs/a", b"")
    for name in (*ODD[2:], "with\udcffbytes"):
        if "/" not in name:
            (tmp_path / "store" / "runs" / name).write_bytes(b"")
    assert [each.key for each in list_all(store, "")] == ["runs/a"]
    assert [each.key for each in list_all(store, "", page=1)] == ["runs/a"]


def test_many_notes_cost_a_reader_one_page(tmp_path):
    with S3Gateway(FolderStore(tmp_path / "store")) as gateway:
        gateway._notes = {f".uploads~/{OWN}/{number:05d}/~0": 0.0 for number in range(5000)}
        store = open_store(S3Gateway.url(gateway.port), credentials=gateway.credentials)
        assert len(store.open_uploads(OWN)) == 1000


@given(text=st.one_of(st.text(), st.text(alphabet="a.-_/~"), st.from_regex(r"[a-z.]{1,3}(/[a-z.]{1,3}){0,3}")))
@example("a" * 255)
@example("a" * 256)
@example("/".join(["a" * 99] * 9))
@example("/".join(["a" * 100] * 9))
@example("a\n")
@example("a/b\n")
def test_a_name_is_a_key_exactly_if_it_passes_the_check(text):
    try:
        check_key(text)
        passes = True
    except UsageError:
        passes = False
    assert is_key(text) == passes
