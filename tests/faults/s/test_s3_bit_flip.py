"""S3: any single bit of any file of a checkpoint, manifest included: refused by name, the older one is opened."""

from random import Random

import pytest
from tests.faults.s.damage import PREFIX, opened, victim

pytestmark = pytest.mark.row("S3", full="10,000 bits")


FULL = [pytest.param(2_500, seed, marks=[pytest.mark.slow, pytest.mark.timeout(3600)]) for seed in range(2, 6)]


@pytest.mark.parametrize(("flips", "seed"), [(100, 1), *FULL])
def test_every_flipped_bit_is_refused_by_name(tmp_path, monkeypatch, flips, seed):
    damaged = victim(tmp_path / "store", monkeypatch)
    random = Random(seed)
    names = sorted(damaged.files)
    assert opened(damaged) == (2, True, [])
    for number in range(flips):
        name = names[number % len(names)]
        bit = random.randrange(8 * len(damaged.files[name]))
        data = bytearray(damaged.files[name])
        data[bit // 8] ^= 1 << bit % 8
        damaged.put(name, bytes(data))
        step, as_saved, refused = opened(damaged)
        where = f"seed {seed}, flip {number}: bit {bit} of {name}"
        assert (step, as_saved) == (1, True), where
        assert [file for file, _ in refused] == [f"{PREFIX}/step-00000002/{name}"], where
        damaged.put(name, damaged.files[name])
    assert opened(damaged) == (2, True, [])
