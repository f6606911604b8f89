"""What repository and store add to two records: counted files, packages with versions, the band of a curve."""

import json
from dataclasses import replace

import pytest
from tests.line import repositories
from tests.report import records

from gangline.git.repository import Repository
from gangline.line.results.run_differences import read_differences
from gangline.spec.record import Artifact
from gangline.storage.open import open_store


@pytest.fixture
def store(tmp_path):
    return open_store(f"file:{tmp_path / 'store'}")


def two_commits(folder, before, after):
    repo = repositories.make_repository(folder, before)
    git = Repository.at(repo)
    old = git.commit()
    new = repositories.commit(repo, after)
    found = []
    for sha in (old, new):
        record = records.passed()
        values = {**record.inputs.values, "env.lock": "lock.txt"}
        commit = replace(record.commit, sha=sha, tree=git.tree(sha))
        found.append(replace(record, commit=commit, inputs=replace(record.inputs, values=values)))
    return git, *found


def test_files_carry_their_counts_and_what_is_not_text_has_none(tmp_path, store):
    git, base, this = two_commits(
        tmp_path / "r", {"a.py": "1\n2\n", "b\tc.py": "x\n"}, {"a.py": "1\n3\n4\n", "n": "\0"}
    )
    files = read_differences(store, git, base, this).files
    assert [(each.path, each.added, each.removed) for each in files] == [("a.py", 2, 1), ("n", None, None)]


def test_packages_come_from_the_lock_of_each_commit(tmp_path, store):
    lock = "--hash\nnumpy==1.0 \\\n  --hash=sha256:00\nMy_Tool[x]==2.1 ; python_version > '3'\n"
    git, base, this = two_commits(tmp_path / "r", {"lock.txt": lock}, {"lock.txt": lock.replace("1.0", "1.1")})
    beyond = read_differences(store, git, base, this)
    assert beyond.base_packages == {"numpy": "1.0", "my-tool": "2.1"}
    assert beyond.this_packages["numpy"] == "1.1"


def test_a_published_bill_goes_before_the_lock(tmp_path, store):
    git, base, this = two_commits(tmp_path / "r", {"lock.txt": "numpy==1.0\n"}, {"lock.txt": "numpy==1.1\n"})
    bill = json.dumps({"components": [{"name": "numpy", "version": "9"}]}).encode()
    store.put("bill.json", bill)
    reported = Artifact(
        kind="sbom", key="bill.json", media_type="application/json", size_bytes=len(bill), sha256="0" * 64
    )
    assert read_differences(store, git, replace(base, artifacts=(reported,)), this).base_packages == {"numpy": "9"}


def test_without_a_clone_the_records_still_give_the_band_of_the_curve(store):
    beyond = read_differences(store, None, records.passed(), records.refused())
    assert beyond.files == ()
    assert len(beyond.bands) == 64
    low, high = beyond.bands[120]
    ends = [values[-1] for values in records.passed().curve.seed_points.values()]
    assert low < min(ends) <= max(ends) < high
