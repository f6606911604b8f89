"""Samples of a member: a task finds them in the member's folder, and in nothing else."""

from types import SimpleNamespace

import pytest
from tests.flare.offers import new_plan

from gangline.errors import ConfigError
from gangline.train.roles.federated_member import _open


def test_a_task_gets_the_folder_its_files_and_its_shards(tmp_path):
    for name in ("rows.csv", "one.safetensors", "part-0.arrow"):
        (tmp_path / name).write_text("")
    asked = {}

    def build_data(split, options):
        asked.update(options, split=split)
        return [1, 2]

    assert _open(new_plan(), SimpleNamespace(build_data=build_data), "holdout", tmp_path) == [1, 2]
    assert (asked["split"], asked["folder"]) == ("holdout", str(tmp_path))
    assert sorted([*asked["text"], *asked["shards"]]) == sorted(str(each) for each in tmp_path.iterdir())


@pytest.mark.parametrize("found", [iter([1]), None, {1, 2}], ids=["a stream", "nothing", "a set"])
def test_a_task_whose_build_data_gives_no_samples_by_number_is_exit_10(tmp_path, found):
    task = SimpleNamespace(build_data=lambda split, options: found)
    with pytest.raises(ConfigError, match=r"build_data\('train'\): wanted an object with len\(\) and \[i\], found"):
        _open(new_plan(), task, "train", tmp_path)
