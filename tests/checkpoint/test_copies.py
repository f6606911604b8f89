"""Copies in the memory of nodes: newer than the store, complete without a lost node, verified like what is stored."""

import shutil
from pathlib import Path
from typing import ClassVar

import pytest
from tests.checkpoint.forked import run_gang
from tests.checkpoint.layouts import Layout, build, step
from tests.checkpoint.small import Wrapped
from torch import nn

from gangline.checkpoint.format.manifest import list_checkpoints
from gangline.checkpoint.loader import load
from gangline.checkpoint.node_copies import NodeCopies
from gangline.checkpoint.saver import Saver
from gangline.errors import StorageError
from gangline.storage.folder.store import FolderStore

KEY = b"copies"
PREFIX = "runs/p/c/r/checkpoints"
LAYOUTS = [
    Layout("pp_fsdp", 4),
    *(pytest.param(Layout(kind, 4), marks=pytest.mark.slow) for kind in ("ddp", "fsdp", "fsdp_tp")),
]
PER_NODE = 2


class Away(Wrapped):
    """A store that takes nothing more."""

    def put(self, key, data):
        raise StorageError("connection refused; is the store up?")


def copies_of(root, rank, *, peers=1):
    from gangline.checkpoint.node_copies import NodeCopies

    folder = Path(root) / f"node-{rank // PER_NODE}"
    folder.mkdir(exist_ok=True)
    return NodeCopies(folder, rank // PER_NODE, peers)


def save(rank, group, root, layout, peers=1):
    """Step 1 saved everywhere, step 2 in copies alone: the store is away. Digests of both, and what was told."""
    from gangline.checkpoint.saver import Saver
    from gangline.checkpoint.state import tensor_digests

    store = FolderStore(Path(root) / "store")
    model, optimizer = build(layout, rank, seed=1)
    digests, reports = {}, []
    for number, to in ((1, store), (2, Away(store))):
        step(model, optimizer, number)
        saver = Saver(
            store=to, prefix=PREFIX, run="r", plan_digest="d", generation=number, key=KEY, group=group,
            copies=copies_of(root, rank, peers=peers),
        )  # fmt: skip
        saver.save(model, optimizer, {"cursor": number}, step=number, wait=False, rank_numbers={"rank": rank})
        reports += saver.wait()
        digests[number] = tensor_digests(model, optimizer, group=group)
    return digests, reports


def reopen(rank, group, root, layout):
    from gangline.checkpoint.loader import load
    from gangline.checkpoint.state import tensor_digests

    refused = []
    model, optimizer = build(layout, rank, seed=9)
    loaded = load(
        FolderStore(Path(root) / "store"), PREFIX, model, optimizer, key=KEY, group=group,
        copies=copies_of(root, rank), on_refused=lambda *reported: refused.append(reported),
    )  # fmt: skip
    return loaded, refused, tensor_digests(model, optimizer, group=group)


@pytest.fixture(scope="module", params=LAYOUTS, ids=str)
def saved(request, tmp_path_factory):
    root = tmp_path_factory.mktemp("copies")
    answers = run_gang(4, save, str(root), request.param)
    return root, request.param, answers[0]


@pytest.fixture
def gang(saved, tmp_path):
    """(folder of a fresh gang with those copies, layout, digests by step)."""
    root, layout, (digests, _) = saved
    shutil.copytree(root, tmp_path / "gang")
    return tmp_path / "gang", layout, digests


def opened(root, layout, *, size=4):
    answers = run_gang(size, reopen, str(root), layout)
    assert all(answer[1:] == answers[0][1:] for answer in answers)
    return answers[0]


def test_copies_are_kept_though_the_store_is_away(saved):
    root, _, (_, reports) = saved
    assert [(report.step, report.error is None) for report in reports] == [(1, True), (2, False)]
    assert 0 < reports[0].copied_seconds < reports[0].seconds
    assert [found.step for found in list_checkpoints(FolderStore(root / "store"), PREFIX)] == [1]


@pytest.mark.long
def test_newest_copy_wins_over_the_store(gang):
    root, layout, digests = gang
    loaded, refused, found = opened(root, layout)
    assert (loaded.step, loaded.from_copy, loaded.numbers, refused) == (2, True, {"cursor": 2}, [])
    assert loaded.rank_numbers == {"rank": 0}
    assert found == digests[2]


@pytest.mark.row("T11")
@pytest.mark.parametrize("node", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_lost_node_is_restored_from_its_peer_bit_for_bit(gang, node):
    root, layout, digests = gang
    shutil.rmtree(root / f"node-{node}")
    loaded, refused, found = opened(root, layout)
    assert (loaded.step, loaded.from_copy, refused) == (2, True, [])
    assert found == digests[2]


@pytest.mark.long
def test_all_nodes_lost_leaves_the_store(gang):
    root, layout, digests = gang
    for node in (0, 1):
        shutil.rmtree(root / f"node-{node}")
    loaded, refused, found = opened(root, layout)
    assert (loaded.step, loaded.from_copy, refused) == (1, False, [])
    assert found == digests[1]


@pytest.mark.parametrize(
    "kind", ["flipped", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("cut", "manifest"))]
)
def test_damaged_copy_is_never_loaded(gang, kind):
    root, layout, digests = gang
    shutil.rmtree(root / "node-1")
    pattern = "manifest.json" if kind == "manifest" else "*-r00001-0.safetensors"
    [victim] = (root / "node-0").glob(f"{PREFIX}/step-00000002/{pattern}")
    data = bytearray(victim.read_bytes())
    data[-1] ^= 1
    victim.write_bytes(data[:-1] if kind == "cut" else data)
    loaded, refused, found = opened(root, layout)
    assert (loaded.step, loaded.from_copy) == (1, False)
    assert found == digests[1]
    assert [file for file, _ in refused] == (
        [f"copy of {PREFIX}/step-00000002/{victim.name}"] if kind == "flipped" else []
    )


def test_one_step_is_kept_and_every_node_has_its_own_and_its_peers_files(gang):
    root, _, _ = gang
    for node in (0, 1):
        folder = root / f"node-{node}" / PREFIX
        assert [each.name for each in folder.iterdir() if list(each.iterdir())] == ["step-00000002"]
        files = {each.name for each in (folder / "step-00000002").iterdir()}
        assert {f"g0002-r{rank:05d}-0.safetensors" for rank in range(4)} < files


class Telling(NodeCopies):
    """Copies that remember in which order they got files."""

    reported: ClassVar[list[str]] = []

    def write(self, key, pieces):
        self.reported.append(key.rpartition("/")[2])
        super().write(key, pieces)


@pytest.fixture
def alone(tmp_path):
    """(copies, store, model) of one process: step 1 in the store, step 2 in copies alone."""
    (tmp_path / "node-0").mkdir()
    copies, store, model = Telling(tmp_path / "node-0", 0), FolderStore(tmp_path / "store"), nn.Linear(4, 2)
    for number, to in ((1, store), (2, Away(store))):
        Telling.reported.clear()
        saver = Saver(
            store=to, prefix=PREFIX, run="r", plan_digest="d", generation=number, key=KEY, group=None, copies=copies
        )
        saver.save(model, None, {}, step=number, wait=False)
        saver.wait()
    return copies, store, model


@pytest.mark.row("T11")
def test_manifest_of_a_copy_comes_last(alone):
    assert Telling.reported == ["g0002-index.json", "g0002-state.json", "manifest.json"]


@pytest.mark.row("T11")
@pytest.mark.parametrize("change", [Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:-1])])
def test_copies_that_lack_a_file_everywhere_are_none(alone, change):
    copies, store, model = alone
    assert load(store, PREFIX, model, None, key=KEY, group=None, copies=copies).step == 2
    [shard] = copies.folder.glob(f"{PREFIX}/step-00000002/*.safetensors")
    change(shard)
    loaded = load(store, PREFIX, model, None, key=KEY, group=None, copies=copies)
    assert (loaded.step, loaded.from_copy) == (1, False)


@pytest.mark.row("T11")
def test_copy_that_breaks_off_has_no_name(tmp_path):
    def pieces():
        yield b"the first half"
        raise OSError("the peer is gone")

    copies = NodeCopies(tmp_path, 0)
    with pytest.raises(StorageError, match=r"cannot write a copy to .*: the peer is gone"):
        copies.write(f"{PREFIX}/step-00000002/shard", pieces())
    assert [each for each in tmp_path.rglob("*") if each.is_file()] == []


class Rotting(NodeCopies):
    """Copies of which one bit of a shard changes in memory once they are kept."""

    def keep_only(self, prefix, kept):
        super().keep_only(prefix, kept)
        [shard] = self.folder.glob(f"{prefix}/*/*.safetensors")
        data = shard.read_bytes()
        shard.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


@pytest.mark.row("T11")
def test_copy_that_changed_in_memory_never_becomes_a_checkpoint(tmp_path):
    (tmp_path / "node-0").mkdir()
    store = FolderStore(tmp_path / "store")
    saver = Saver(
        store=store, prefix=PREFIX, run="r", plan_digest="d", generation=1, key=KEY, group=None,
        copies=Rotting(tmp_path / "node-0", 0),
    )  # fmt: skip
    saver.save(nn.Linear(4, 2), None, {}, step=1, wait=False)
    [report] = saver.wait()
    assert "the copy in memory is damaged" in report.error
    assert list_checkpoints(store, PREFIX) == []


class Full(NodeCopies):
    def free_bytes(self):
        return 0


@pytest.mark.row("T11")
def test_node_without_room_keeps_no_copy_and_says_so(tmp_path):
    copies = Full(tmp_path, 0)
    saver = Saver(
        store=FolderStore(tmp_path / "store"), prefix=PREFIX, run="r", plan_digest="d", generation=1, key=KEY,
        group=None, copies=copies,
    )  # fmt: skip
    report = saver.save(nn.Linear(4, 2), None, {}, step=1, wait=True)
    assert (report.error, report.copied_seconds) == (None, None)
    assert report.note == "no copy in memory: a node has too little memory for it"
    assert not list(tmp_path.glob(f"{PREFIX}/*"))


@pytest.mark.slow
def test_without_peers_a_lost_node_costs_its_copies(tmp_path):
    digests, _ = run_gang(4, save, str(tmp_path), Layout("fsdp", 4), 0)[0]
    shutil.rmtree(tmp_path / "node-1")
    loaded, _, found = opened(tmp_path, Layout("fsdp", 4))
    assert (loaded.step, loaded.from_copy) == (1, False)
    assert found == digests[1]


@pytest.mark.long
def test_copies_open_under_another_layout_and_number_of_ranks(gang):
    root, _, digests = gang
    loaded, _, found = opened(root, Layout("pp", 2), size=2)
    assert (loaded.step, loaded.from_copy, loaded.rank_numbers) == (2, True, None)
    assert found == digests[2]
