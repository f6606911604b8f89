"""FolderStore against the slowest store that is obviously right: a dict."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from gangline.storage.folder.store import FolderStore
from gangline.storage.objects.protocol import list_all

keys = st.sampled_from(["a", "a.b", "a-/x", "b/a", "b/a-b", "b/c/d", "b/c/e", "b-c/d", "c"])
data = st.binary(max_size=3)


class FolderAgainstDict(RuleBasedStateMachine):
    versions = Bundle("versions")

    def __init__(self):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.store = FolderStore(self.folder / "store")
        self.model = {}
        self.etags = {}
        self.seen = set()

    def teardown(self):
        shutil.rmtree(self.folder)

    def wrote(self, key, content, etag):
        assert etag not in self.seen, "a version is never given twice"
        self.seen.add(etag)
        self.model[key], self.etags[key] = content, etag
        return key, etag

    @rule(target=versions, key=keys, content=data)
    def put(self, key, content):
        return self.wrote(key, content, self.store.put(key, content))

    @rule(key=keys, content=data)
    def put_if_absent(self, key, content):
        etag = self.store.put_if_absent(key, content)
        assert (etag is None) == (key in self.model)
        if etag:
            self.wrote(key, content, etag)

    @rule(version=versions, content=data)
    def compare_and_set(self, version, content):
        key, expected = version
        etag = self.store.compare_and_set(key, content, expected)
        assert (etag is not None) == (self.etags.get(key) == expected)
        if etag:
            self.wrote(key, content, etag)

    @rule(target=versions, key=keys, content=data)
    def upload(self, key, content):
        with self.store.upload(key) as upload:
            upload.part(content)
            etag = upload.complete()
        return self.wrote(key, content, etag)

    @rule(key=keys)
    def delete(self, key):
        self.store.delete(key)
        self.model.pop(key, None)
        self.etags.pop(key, None)

    @rule(prefix=st.sampled_from(["", "a", "a-", "b/", "b/c", "b/c/", "c", "d"]), after=keys, limit=st.integers(1, 4))
    def page(self, prefix, after, limit):
        wanted = sorted(key for key in self.model if key.startswith(prefix) and key > after)[:limit]
        assert [entry.key for entry in self.store.list(prefix, after, limit)] == wanted

    @invariant()
    def everything_is_there_and_nothing_else(self):
        found = {entry.key: self.store.get(entry.key) for entry in list_all(self.store, "", page=2)}
        assert {key: blob.data for key, blob in found.items()} == self.model
        assert {key: blob.etag for key, blob in found.items()} == self.etags
        assert self.store.open_uploads() == []


FolderAgainstDict.TestCase.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
TestFolderAgainstDict = FolderAgainstDict.TestCase
