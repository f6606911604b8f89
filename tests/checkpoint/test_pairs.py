"""What one layout saved every other opens bit for bit, optimizer and its numbers included."""

from functools import cache

import pytest
from tests.checkpoint.forked import run_gang
from tests.checkpoint.layouts import ALL, Layout, build, step

KEY = b"pairs"
SAVED_STEPS = 2


def prefix(layout):
    return f"runs/p/c/{layout}/checkpoints"


def save(rank, group, root, layout):
    """Two updates saved; digests of all full tensors."""
    from gangline.checkpoint.saver import Saver
    from gangline.checkpoint.state import tensor_digests
    from gangline.storage.folder.store import FolderStore

    model, optimizer = build(layout, rank, seed=1)
    for number in range(SAVED_STEPS):
        step(model, optimizer, number)
    saver = Saver(
        store=FolderStore(root),
        prefix=prefix(layout),
        run=str(layout),
        plan_digest="d",
        generation=1,
        key=KEY,
        group=group,
    )
    saver.save(model, optimizer, {"by": str(layout)}, step=SAVED_STEPS, wait=True, rank_numbers={"rank": rank})
    saver.close()
    step(model, optimizer, SAVED_STEPS)
    return tensor_digests(model, optimizer, group=group)


def reopen(rank, group, root, writers, layout):
    """By writer: what each rank held after opening, its step and numbers, and after one more update."""
    from gangline.checkpoint.loader import load
    from gangline.checkpoint.state import tensor_digests
    from gangline.storage.folder.store import FolderStore

    found = {}
    for writer in writers:
        model, optimizer = build(layout, rank, seed=99)
        loaded = load(FolderStore(root), prefix(writer), model, optimizer, key=KEY, group=group)
        opened = tensor_digests(model, optimizer, group=group)
        step(model, optimizer, SAVED_STEPS)
        found[str(writer)] = {
            "step": loaded.step, "numbers": loaded.numbers, "rank_numbers": loaded.rank_numbers, "opened": opened,
            "after": tensor_digests(model, optimizer, group=group),
        }  # fmt: skip
    return found


class Saved:
    """Checkpoints of every layout asked for, each made once; digests as stored and one update later."""

    def __init__(self, root) -> None:
        self.root = str(root)
        self.after = cache(self._save)

    def _save(self, layout: Layout):
        return run_gang(layout.size, save, self.root, layout)[0]

    def stored(self, layout: Layout):
        from gangline.checkpoint.format.stored_tensors import stored_digests
        from gangline.storage.folder.store import FolderStore

        folder = f"{prefix(layout)}/step-{SAVED_STEPS:08d}"
        return stored_digests(FolderStore(self.root), folder, KEY, optimizer=True)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return Saved(tmp_path_factory.mktemp("pairs"))


def assert_opens(saved, reader, writers):
    """Also one update later: then numbers of the groups and state that is no tensor were right too."""
    for writer in writers:
        saved.after(writer)
    for rank, found in enumerate(run_gang(reader.size, reopen, saved.root, writers, reader)):
        for writer in writers:
            seen, where = found[str(writer)], f"{writer} opened by {reader}, rank {rank}"
            assert seen["step"] == SAVED_STEPS, where
            assert seen["opened"] == saved.stored(writer), where
            assert seen["after"] == saved.after(writer), where
            assert seen["numbers"] == {"by": str(writer)}, where
            assert seen["rank_numbers"] == ({"rank": rank} if writer.size == reader.size else None), where


PAIRS = [
    (Layout("pp", 4), Layout("fsdp_tp", 4)), (Layout("fsdp_tp", 4), Layout("zero1", 2)),
    (Layout("zero1", 2), Layout("pp", 2)), (Layout("tp", 2), Layout("one", 1)),
    (Layout("one", 1), Layout("pp_fsdp", 4)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("writer", "reader"),
    [pytest.param(*pair, marks=[pytest.mark.long] if max(each.size for each in pair) > 2 else []) for pair in PAIRS],
    ids=str,
)
def test_checkpoint_opens_bit_equal_under_another_layout(saved, writer, reader):
    assert_opens(saved, reader, [writer])


@pytest.mark.slow
@pytest.mark.parametrize("reader", ALL, ids=str)
def test_checkpoint_of_every_layout_opens_bit_equal_under_every_other(saved, reader):
    assert_opens(saved, reader, ALL)
