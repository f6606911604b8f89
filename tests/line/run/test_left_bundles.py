"""What drivers that died gave to pods of model code: a sweep deletes it once its URL has ended."""

import os
import time

import pytest
from tests.line import repositories

from gangline.line.run.sweep import sweep
from gangline.spec.config.site import Site, StoreTable
from gangline.spec.gang.one_shot_pod import BUNDLE_SECONDS
from gangline.storage.open import open_store


@pytest.mark.row("P10")
@pytest.mark.parametrize(("dry_run", "left"), [(False, ["once/new.tar"]), (True, ["once/new.tar", "once/old.tar"])])
def test_sweep_deletes_bundles_that_no_pod_can_open_any_more(tmp_path, dry_run, left):
    repo, url = repositories.make_repository(tmp_path / "repo"), f"file:{tmp_path / 'store'}"
    store = open_store(url)
    for name in ("old", "new"):
        store.put(f"once/{name}.tar", b"bundle")
    long_ago = time.time() - BUNDLE_SECONDS - 60
    os.utime(tmp_path / "store" / "once" / "old.tar", (long_ago, long_ago))
    sweep(repo, site=Site(store=StoreTable(url=url)), environ={"HOME": str(tmp_path)}, dry_run=dry_run)
    assert [each.key for each in store.list("once/")] == left
