"""Left uploads are collected by prefix and age, from every store."""

import time

from gangline.storage.objects.multipart import abort_left_uploads


def test_left_uploads_are_collected_by_prefix_and_age(store):
    blocks = [store.upload(key) for key in ("runs/ended/a", "runs/ended/b", "runs/living/a")]
    for block in blocks:
        block.__enter__().part(b"half")
    assert abort_left_uploads(store, "runs/", older_than_seconds=3600) == []
    later = time.time() + 7200
    collected = abort_left_uploads(store, "runs/ended/", older_than_seconds=3600, now=later)
    assert sorted(upload.key for upload in collected) == ["runs/ended/a", "runs/ended/b"]
    assert [upload.key for upload in store.open_uploads()] == ["runs/living/a"]
    assert len(abort_left_uploads(store, "", older_than_seconds=0, now=later)) == 1
    assert store.open_uploads() == []
    for block in blocks:
        block.gen.close()
    assert store.list("") == []
