"""S2: killed before and after every call that a save makes to its store, a training comes back to the same bits."""

import shutil
import signal
import time
from random import Random

import pytest
from tests.faults.s.crashing import KEY, PREFIX, STEPS, Child, build, in_child, train

from gangline.checkpoint.format.folder import CheckpointFolder
from gangline.checkpoint.format.manifest import list_checkpoints
from gangline.checkpoint.format.retention import collect
from gangline.checkpoint.loader import load
from gangline.checkpoint.state import tensor_digests
from gangline.storage.folder.store import FolderStore

pytestmark = [pytest.mark.row("S2", full="every call, 20 times, with a second kill in each recovery"), pytest.mark.long]


@pytest.fixture(scope="module")
def two_steps(tmp_path_factory):
    """A store with steps 1 and 2, and the digests of steps 1 to 3 of the unbroken run."""
    root = tmp_path_factory.mktemp("two") / "store"
    train(FolderStore(root), 1, until=STEPS - 1)
    whole = tmp_path_factory.mktemp("whole") / "store"
    return root, train(FolderStore(whole), 1, until=STEPS)


def opened(root):
    """(step, digests) that a loader sees; all that is listed is whole."""
    model, optimizer = build()
    refused = []
    loaded = load(
        FolderStore(root), PREFIX, model, optimizer, key=KEY, group=None,
        on_refused=lambda *reported: refused.append(reported),
    )  # fmt: skip
    assert refused == [], "a manifest stands there before its files do"
    for found in list_checkpoints(FolderStore(root), PREFIX):
        CheckpointFolder.open(FolderStore(root), found.prefix, KEY)  # older ones are whole or gone, too
    return loaded.step, tensor_digests(model, optimizer)


def crash(two_steps, scratch, at, when):
    """Kill a resumed training at effect `at`; its store, its exit code, and the effects that began."""
    root = scratch / f"{at}-{when}" / "store"
    shutil.copytree(two_steps[0], root)
    log = scratch / f"{at}-{when}.log"
    code = in_child(Child(root, 2, log, at, when))
    return root, code, log.read_text().splitlines()


def assert_recovers(two_steps, root, where, *, generation=3):
    """What is left loads as a whole; a new generation ends where the unbroken run did and leaves nothing behind."""
    digests, store = two_steps[1], FolderStore(root)
    step, found = opened(root)
    assert found == digests[step], f"{where}: step {step} is not what was saved"
    assert step >= STEPS - 1, f"{where}: step {step} is older than the last complete save"
    train(store, generation, until=STEPS)
    assert opened(root) == (STEPS, digests[STEPS]), where
    collect(store, PREFIX, KEY, now=time.time() + 3600)
    folders = {entry.key.rpartition("/")[0] for entry in store.list(PREFIX)} - {PREFIX}
    assert folders == {found.prefix for found in list_checkpoints(store, PREFIX)}, where
    assert store.open_uploads(PREFIX) == [], where


def strike(two_steps, scratch, effects, at, when):
    root, code, _ = crash(two_steps, scratch, at, when)
    where = f"killed {when} effect {at} of {len(effects)}: {effects[at - 1]}"
    assert code == -signal.SIGKILL, where
    assert_recovers(two_steps, root, where)
    shutil.rmtree(root.parent)


def strike_twice(two_steps, scratch, effects, at, dice):
    """Killed after effect `at`, and in the recovery before or after one that is drawn, should it have so many."""
    root, code, _ = crash(two_steps, scratch, at, "after")
    again, when = dice.randint(1, len(effects)), dice.choice(["before", "after"])
    where = f"killed after effect {at} of {len(effects)}: {effects[at - 1]}, then {when} effect {again} of the recovery"
    assert code == -signal.SIGKILL, where
    assert in_child(Child(root, 3, scratch / f"{at}-again.log", again, when)) in (0, -signal.SIGKILL), where
    assert_recovers(two_steps, root, where, generation=4)
    shutil.rmtree(root.parent)


@pytest.fixture
def effects(two_steps, tmp_path):
    """Every effect of the unbroken save, in order; between two of them the store has one state."""
    _, code, effects = crash(two_steps, tmp_path, 0, "before")
    assert code == 0
    kinds = {effect.split()[0] for effect in effects}
    assert kinds == {"upload", "part", "complete", "put", "put_if_absent", "compare_and_set", "delete"}
    return effects


def test_kill_between_any_two_store_calls_of_a_save_loses_at_most_that_save(two_steps, tmp_path, effects):
    for at in range(1, len(effects) + 1):
        strike(two_steps, tmp_path, effects, at, "before")
    strike(two_steps, tmp_path, effects, len(effects), "after")


@pytest.mark.slow
@pytest.mark.parametrize("round_", range(20))
def test_kill_after_any_store_call_before_its_answer_is_used(two_steps, tmp_path, effects, seed, round_):
    dice = Random(f"S2 {seed} {round_}")
    for at in range(1, len(effects) + 1):
        strike_twice(two_steps, tmp_path, effects, at, dice)
