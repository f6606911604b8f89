"""Which cache and which sources a gang gets: by trust, and by what its run may change for others."""

from dataclasses import replace
from unittest import mock

import pytest
from tests.line.gangs.test_podsets import IMAGE, FarStore, line_of, plan_of, planned

from gangline.errors import ConfigError, IntegrityError
from gangline.line.gangs.launchers import secret_reader
from gangline.line.gangs.podsets import make_podset
from gangline.line.request.trust import rights_of
from gangline.spec import launchers
from gangline.spec.config.site import PodTable, Site
from gangline.spec.config.site_tables import CacheTable, SourceTable
from gangline.spec.data_source import DatasetUse, DataSource
from gangline.spec.gang.driver_orders import SHARDS_KEY, ShardAccess
from gangline.spec.launchers import LauncherTraits

SITE = Site(
    source={
        "hdfs": SourceTable(url="webhdfs://n:9870/c", credentials="secret:env:HDFS", hosts=("d-*:9864",), ranks=True),
        "disk": SourceTable(url="file:///data", ranks=True),
        "driver": SourceTable(url="file:///private", credentials="secret:env:OTHER"),
    },
    cache=CacheTable(path="/nvme/gangline/", bytes=2e12),
)
USE = DatasetUse(name="wiki", version="3f2a91c4", digest="a" * 64, num_samples=1, size_bytes=1)


def podset(tmp_path, site=SITE, *, target="local", sets=(USE,), **commit):
    plan = replace(plan_of(4), data=DataSource(sets=sets))
    found = planned(target, procs=4, image=IMAGE)
    found = replace(found, commit=replace(found.commit, **commit))
    return make_podset(plan, record=found, line=line_of(4), site=site, store=FarStore(tmp_path / "store"))


def access(found):
    return ShardAccess.from_json(found.env.get(SHARDS_KEY, "{}"))


def test_runs_that_may_publish_share_a_cache_of_the_project_and_others_another(tmp_path):
    safe = access(podset(tmp_path, trust="own", protected=True, patch=None))
    assert (safe.cache, safe.cache_bytes) == ("/nvme/gangline/shards/cheap-published", 2e12)
    for unsafe in ({"protected": False, "patch": None}, {"protected": True, "patch": "blobs/sha256/" + "a" * 64}):
        assert access(podset(tmp_path, trust="own", **unsafe)).cache == "/nvme/gangline/shards/cheap-other"


def test_ranks_of_own_commits_get_the_sources_that_the_site_opens_without_its_references(tmp_path):
    found = podset(tmp_path, trust="own")
    assert sorted(access(found).sources) == ["disk", "hdfs"]
    assert access(found).sources["hdfs"].credentials == "source.hdfs"
    assert "source.hdfs" in found.secrets
    assert not [each for each in found.secrets if each.startswith("source.d")]
    assert "secret:env" not in found.env[SHARDS_KEY]


def test_forks_get_neither_cache_nor_source(tmp_path):
    found = podset(tmp_path, trust="fork")
    assert SHARDS_KEY not in found.env
    assert [each for each in found.secrets if each.startswith("source.")] == []


def test_pods_keep_shards_in_half_of_their_own_disk(tmp_path):
    site = replace(SITE, pod=PodTable(disk_bytes=10e9))
    for trust in ("own", "fork"):
        found = access(podset(tmp_path, site, target="kubernetes", trust=trust))
        assert (found.cache, found.cache_bytes) == (None, 5e9)
        assert bool(found.sources) == (trust == "own")


def test_the_cache_of_this_machine_is_not_for_gangs_on_other_servers(tmp_path):
    table = LauncherTraits()
    with mock.patch.dict(launchers.LAUNCHERS, {"local": table}):
        assert access(podset(tmp_path, trust="own")).cache is None


def test_gangs_without_data_sets_are_the_same_as_ever(tmp_path):
    assert podset(tmp_path, sets=(), trust="own") == podset(tmp_path, Site(), sets=(), trust="own")


def test_secrets_of_sources_are_for_own_commits_and_sources_that_ranks_may_read(tmp_path):
    own = planned("local", procs=4)
    own = replace(own, commit=replace(own.commit, trust="own"))
    environ = {"HDFS": "alice:secret", "OTHER": "x"}
    read = secret_reader(FarStore(tmp_path), SITE, environ, rights_of(own))
    assert read("source.hdfs") == b"alice:secret"
    for name in ("source.driver", "source.disk", "source.none"):
        with pytest.raises(IntegrityError, match="ranks = true"):
            read(name)
    with pytest.raises(ConfigError, match="secret:env:HDFS"):
        secret_reader(FarStore(tmp_path), SITE, {}, rights_of(own))("source.hdfs")
    fork = replace(own, commit=replace(own.commit, trust="fork"))
    with pytest.raises(IntegrityError, match="of an own commit"):
        secret_reader(FarStore(tmp_path), SITE, environ, rights_of(fork))("source.hdfs")
