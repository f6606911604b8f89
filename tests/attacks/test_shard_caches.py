"""Ranks put other bytes into the cache of shards: no run that may publish reads them, and no fork reaches any cache."""

import json
import os
import tempfile
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
from tests.contracts.launcher.gangs import Stand, poll, sandbox_here

from gangline.data.cache import ShardCache
from gangline.launch.local.folder import GangFolder
from gangline.line.gangs.sandbox import sandbox_of
from gangline.spec.config.site import Site
from gangline.spec.config.site_tables import CacheTable
from gangline.spec.dataset import DatasetShard
from gangline.spec.gang.driver_orders import CACHES, SHARDS_KEY, ShardAccess

pytestmark = [pytest.mark.row("P5"), pytest.mark.timeout(240)]
RIGHT, WRONG = b"right" * 40, b"wrong" * 40
SHARD = DatasetShard(path="0.arrow", sha256=sha256(RIGHT).hexdigest(), size_bytes=len(RIGHT), rows=1)
ROBBER = """
    import json, os, pathlib
    place, digest = pathlib.Path({place!r}), {digest!r}
    seen, wrote = [], []
    for kind in ("p-published", "p-other", "q-published", "."):
        folder = place / kind
        try:
            seen += [f"{{kind}}/{{each.name}}" for each in folder.iterdir()]
        except OSError:
            pass
        for action in ("chmod", "write", "rename"):
            path = folder / digest
            try:
                if action == "chmod":
                    path.chmod(0o666)
                elif action == "write":
                    path.write_bytes({wrong!r})
                else:
                    (folder / "draft").write_bytes({wrong!r})
                    (folder / "draft").rename(path)
                wrote.append(kind)
            except OSError:
                pass
        if kind != ".":
            try:
                folder.rename(place / "away")
                wrote.append(kind + " moved")
            except OSError:
                pass
    out = pathlib.Path(os.environ["GANGLINE_OUT"], "loot.json")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps([seen, sorted(set(wrote))]))
"""


@pytest.fixture
def place():
    if os.geteuid() != 0:
        pytest.skip("needs root, for a folder outside /tmp, of which each sandbox has its own")
    with tempfile.TemporaryDirectory(prefix="gangline-cache-", dir="/var/cache") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def filled(place):
    """Caches of several kinds of runs with the right bytes, as the users of gangs leave them."""
    for kind in ("p-published", "p-other", "q-published"):
        folder = place / CACHES / kind
        ShardCache(folder, 1e9, lambda shard: iter([RIGHT])).file(SHARD)
        for each in (folder, *folder.iterdir()):
            os.chown(each, 65532, 65532)


def rob(tmp_path, place, *, trust, kind):
    """What a gang of this trust saw and wrote, whose PodSet names the cache of a kind."""
    caches, sandbox = place / CACHES, sandbox_here(tmp_path, trust)
    site = Site(cache=CacheTable(path=str(place)))
    hidden = sandbox_of(tmp_path, trust, site=site, environ={}).hidden
    assert caches in hidden
    stand = Stand(tmp_path, sandbox=replace(sandbox, hidden=(*sandbox.hidden, *hidden)))
    program = ROBBER.format(place=str(caches), digest=SHARD.sha256, wrong=WRONG)
    access = ShardAccess(cache=str(caches / kind)) if kind else ShardAccess()
    try:
        stand.launcher.submit(stand.podset(program, ranks=1, env={SHARDS_KEY: access.to_json().decode()}))
        poll(lambda: stand.launcher.status("run-1").state == "ended", seconds=120)
        return json.loads((GangFolder(stand.root / "run-1").inside / "out" / "loot.json").read_text())
    finally:
        stand.close()


def read(place, kind):
    return ShardCache(place / CACHES / kind, 1e9, lambda shard: iter([RIGHT])).file(SHARD).read_bytes()


def test_an_experiment_reaches_its_own_cache_and_none_that_published_runs_read(tmp_path, place):
    filled(place)
    seen, wrote = rob(tmp_path, place, trust="own", kind="p-other")
    assert {each.partition("/")[0] for each in seen} == {"p-other", "."}
    assert wrote == ["p-other"]
    assert [each for each in seen if each.startswith("./")] == ["./p-other"]
    assert (place / CACHES / "p-published" / SHARD.sha256).read_bytes() == RIGHT
    assert (place / CACHES / "q-published" / SHARD.sha256).read_bytes() == RIGHT
    assert (place / CACHES / "p-other" / SHARD.sha256).read_bytes() == WRONG
    assert read(place, "p-other") == RIGHT, "other bytes that do not lie about their time are seen"


@pytest.mark.parametrize("kind", [None, "p-published"])
def test_a_fork_reaches_no_cache_whatever_its_podset_says(tmp_path, place, kind):
    filled(place)
    assert rob(tmp_path, place, trust="fork", kind=kind) == [[], []]
    for each in ("p-published", "p-other", "q-published"):
        assert (place / CACHES / each / SHARD.sha256).read_bytes() == RIGHT
