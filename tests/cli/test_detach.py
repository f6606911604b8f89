"""A driver in the background: how its start is told, and that a failed one leaves nothing."""

import pytest

from gangline.cli.detach import start_driver
from gangline.errors import ConfigError


def test_a_driver_that_ends_before_its_run_has_a_name_tells_why_and_leaves_no_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temp"))
    (tmp_path / "temp").mkdir()
    with pytest.raises(ConfigError, match=r"line\.toml"):
        start_driver([str(tmp_path)])
    assert list((tmp_path / "temp").iterdir()) == []
