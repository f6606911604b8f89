"""What one layout saved, every other opens bit for bit: parameters, buffers, optimizer; and goes on as if unbroken."""

from itertools import product

import pytest
from tests.checkpoint.gang import KEY

from gangline.checkpoint.format.stored_tensors import compare, stored_digests
from gangline.storage.folder.store import FolderStore

LAYOUTS = ("one", "ddp2", "fsdp2")


@pytest.fixture(scope="module")
def saved(run, tmp_path_factory):
    """Three steps saved under each layout, by layout: (store root, what the saving ranks said)."""
    roots = {layout: tmp_path_factory.mktemp(layout) / "store" for layout in LAYOUTS}
    return {layout: (root, run(layout, root=str(root), steps=3, save=True)) for layout, root in roots.items()}


@pytest.mark.parametrize(("writer", "reader"), list(product(LAYOUTS, LAYOUTS)))
def test_checkpoint_of_any_layout_opens_bit_equal_under_any_other(run, saved, writer, reader):
    root, said = saved[writer]
    opened = run(reader, root=str(root), seed=99)
    assert opened["step"] == 3
    assert opened["opened"] == said["digests"]
    assert opened["optimizer"] == said["optimizer"]
    assert opened["numbers"] == {"cursor": 3, "layout": writer}
    assert opened["rank_numbers"] == ({"rank": 0} if (writer == "one") == (reader == "one") else None)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_stored_chunks_have_the_digests_of_the_tensors_that_were_saved(saved, layout):
    root, said = saved[layout]
    stored = stored_digests(FolderStore(root), said["key"], KEY, optimizer=True)
    verdict = compare(said["digests"], stored, checkpoint=said["key"])
    assert (verdict.equal, verdict.different) == (verdict.total, ())
    assert verdict.total > 30


@pytest.mark.parametrize("layout", LAYOUTS)
def test_resumed_training_is_the_unbroken_one_bit_for_bit(run, saved, tmp_path, layout):
    root, said = saved[layout]
    unbroken = run(layout, root=str(tmp_path / "empty"), steps=6)
    resumed = run(layout, root=str(root), seed=99, steps=3)
    assert said["losses"] + resumed["losses"] == unbroken["losses"]
    assert resumed["digests"] == unbroken["digests"]


def test_ranks_get_their_own_numbers_back(run, saved):
    root, _ = saved["ddp2"]
    answers = run("fsdp2", root=str(root))["both"]
    assert [answer["rank_numbers"] for answer in answers] == [{"rank": 0}, {"rank": 1}]


def test_replicas_share_the_writing(saved):
    root, said = saved["ddp2"]
    sizes = {entry.name: entry.stat().st_size for entry in (root / said["key"]).glob("*.safetensors")}
    assert sorted(sizes) == ["g0001-r00000-0.safetensors", "g0001-r00001-0.safetensors"]
    assert max(sizes.values()) < 2 * min(sizes.values())
