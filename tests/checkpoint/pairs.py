"""Checkpoints of one layout opened by others: what each rank then holds, and holds one update later."""

from functools import cache

from tests.checkpoint.forked import run_gang
from tests.checkpoint.layouts import Layout, step

KEY = b"pairs"
SAVED_STEPS = 2


def prefix(layout):
    return f"runs/p/c/{layout}/checkpoints"


def save(rank, group, root, build, layout):
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


def reopen(rank, group, root, build, writers, layout):
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

    def __init__(self, root, build) -> None:
        """`build(layout, rank, seed=)`: this rank's part of the model and an optimizer that has not stepped."""
        self.root, self.build = str(root), build
        self.after = cache(self._save)

    def _save(self, layout: Layout):
        return run_gang(layout.size, save, self.root, self.build, layout)[0]

    def stored(self, layout: Layout):
        from gangline.checkpoint.format.stored_tensors import stored_digests
        from gangline.storage.folder.store import FolderStore

        folder = f"{prefix(layout)}/step-{SAVED_STEPS:08d}"
        return stored_digests(FolderStore(self.root), folder, KEY, optimizer=True)


def assert_opens(saved, reader, writers):
    """Also one update later: then numbers of the groups and state that is no tensor were right too."""
    for writer in writers:
        saved.after(writer)
    for rank, found in enumerate(run_gang(reader.size, reopen, saved.root, saved.build, writers, reader)):
        for writer in writers:
            seen, where = found[str(writer)], f"{writer} opened by {reader}, rank {rank}"
            assert seen["step"] == SAVED_STEPS, where
            assert seen["opened"] == saved.stored(writer), where
            assert seen["after"] == saved.after(writer), where
            assert seen["numbers"] == {"by": str(writer)}, where
            assert seen["rank_numbers"] == ({"rank": rank} if writer.size == reader.size else None), where
