"""S4: truncated, zeroed, swapped, stale and missing files: refused, the file named, the older checkpoint opened."""

from random import Random

import pytest
from tests.faults.s.damage import PREFIX, opened, victim

pytestmark = pytest.mark.row("S4", full="2,100 damaged files")


def truncated(damaged, name, random):
    return {name: damaged.files[name][: random.randrange(len(damaged.files[name]))]}


def zeroed_tail(damaged, name, random):
    data = damaged.files[name]
    kept = random.randrange(len(data.rstrip(b"\0")))
    return {name: data[:kept] + bytes(len(data) - kept)}


def lengthened(damaged, name, random):
    return {name: damaged.files[name] + random.randbytes(random.randint(1, 9))}


def swapped(damaged, name, random):
    other = random.choice([each for each in damaged.files if each != name])
    return {name: damaged.files[other], other: damaged.files[name]}


def stale(damaged, name, random):
    return {name: damaged.stale[name]}


def missing(damaged, name, random):
    return {name: None}


@pytest.mark.parametrize(
    ("strikes", "seed"), [(20, 1), pytest.param(350, 2, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])]
)
@pytest.mark.parametrize("damage", [truncated, zeroed_tail, lengthened, swapped, stale, missing])
def test_damaged_files_are_refused_by_name(tmp_path, monkeypatch, damage, strikes, seed):
    damaged = victim(tmp_path / "store", monkeypatch)
    random = Random(seed)
    names = sorted(damaged.files)
    if damage is missing:
        names.remove("manifest.json")  # a folder without one is no checkpoint
    if damage is stale:
        names = [name for name in names if damaged.stale[name] != damaged.files[name]]
    for number in range(strikes):
        changed = damage(damaged, names[number % len(names)], random)
        for name, data in changed.items():
            damaged.put(name, data)
        step, as_saved, refused = opened(damaged)
        where = f"seed {seed}, strike {number}: {damage.__name__} {sorted(changed)}"
        assert (step, as_saved) == (1, True), where
        assert len(refused) == 1, where
        assert refused[0][0].removeprefix(f"{PREFIX}/step-00000002/") in changed, where
        for name in changed:
            damaged.put(name, damaged.files[name])


def test_folder_without_manifest_is_not_a_checkpoint(tmp_path, monkeypatch):
    damaged = victim(tmp_path / "store", monkeypatch)
    damaged.put("manifest.json", None)
    assert opened(damaged) == (1, True, [])
