"""A driver that was taken over and wakes up: it changes neither the record nor a version, whenever it wakes."""

from contextlib import ExitStack, suppress
from dataclasses import replace

import pytest
from tests.registry.passed_run import copy_of, template

from gangline.errors import CapacityError
from gangline.line.record.context import unchanged
from gangline.line.record.store import read_record
from gangline.line.run import lease
from gangline.line.run.driver import driving, open_run_workspace
from gangline.registry.version_checks import VersionEvidence, check_version
from gangline.registry.versions import list_versions
from gangline.signing.keys import trusted_keys
from gangline.spec.config.line import PublishTable
from gangline.spec.config.load import load_line
from gangline.storage.objects.protocol import list_all

pytestmark = pytest.mark.row("C4")


@pytest.fixture
def published_workspace(tmp_path, tmp_path_factory):
    """A run after its gates, to be published without a smoke test."""
    workspace = copy_of(template(tmp_path_factory, "passed")[0], tmp_path / "root")
    workspace.line = replace(workspace.line, publish=PublishTable(smoke=False))
    return workspace


def test_from_the_moment_a_new_driver_has_the_lease_no_write_of_the_old_one_is_accepted(workspace, monkeypatch):
    record = workspace.run(until="plan")
    line, where = (
        load_line(workspace.repo),
        open_run_workspace(workspace.repo, **workspace.where, observer=workspace.seen),
    )
    monkeypatch.setattr(lease, "is_held", lambda *_, **__: False)  # the old one stood still until its lease was over
    accepted = []
    with ExitStack() as drivers:
        old = drivers.enter_context(driving(where, record, line))
        drivers.enter_context(driving(where, record, line))
        for number in range(100):
            try:
                old.change(lambda each, n=number: replace(each, links={"old": str(n)}))
                accepted.append(number)
            except CapacityError:
                continue
    assert accepted == []


class Stops:
    """A store whose writer is stopped at one call, while another driver does all of its work."""

    def __init__(self, store, at, meanwhile):
        self._store, self._at, self._meanwhile = store, at, meanwhile

    def __getattr__(self, name):
        return getattr(self._store, name)

    def _passes(self, key):
        if self._meanwhile is not None and self._at in key:
            meanwhile, self._meanwhile = self._meanwhile, None
            meanwhile()

    def put(self, key, data):
        self._passes(key)
        return self._store.put(key, data)

    def put_if_absent(self, key, data):
        self._passes(key)
        return self._store.put_if_absent(key, data)


@pytest.mark.parametrize(
    "at", ["/card.md", "/model.safetensors", "/model.sig", "/provenance.json", "models/bytegpt/1.json", "project.json"]
)
def test_a_publisher_that_wakes_up_late_leaves_the_version_as_it_is(published_workspace, at):
    workspace = published_workspace
    young = replace(
        workspace.record, run=replace(workspace.record.run, driver=replace(workspace.record.run.driver, token=9))
    )
    taken_over = []

    def meanwhile():
        workspace.publish(young)
        taken_over.append(True)

    def still_driving():
        if taken_over:
            raise CapacityError("run was taken over by another driver")

    late = Stops(workspace.store, at, meanwhile)
    with suppress(CapacityError):
        workspace.publish(store=late, workdir=workspace.root / "late", still_driving=still_driving)
    assert taken_over
    (version,) = list_versions(workspace.store, "bytegpt")
    evidence = VersionEvidence(
        store=workspace.store,
        repo=workspace.repo,
        keys=trusted_keys(workspace.site, workspace.environ),
        read_record=read_record,
    )
    assert [each.name for each in check_version(version, evidence) if not each.ok] == []
    assert {each.key.split("/")[5].split("-")[1] for each in version.files} == {"9"}
    listed = [entry.key for entry in list_all(workspace.store, f"{workspace.record.prefix}/model/")]
    assert {each.key for each in version.files} <= set(listed)


def test_asking_whether_one_still_drives_writes_nothing(workspace):
    record = workspace.run(until="plan")
    line, where = (
        load_line(workspace.repo),
        open_run_workspace(workspace.repo, **workspace.where, observer=workspace.seen),
    )
    with driving(where, record, line) as ctx:
        before = ctx.records.read()
        ctx.change(unchanged)
        assert ctx.records.read() == before
