"""What is said where this machine does not take a file."""

import os

import pytest

from gangline.errors import StorageError, storage_errors


def test_the_very_file_is_named_where_it_is_another(tmp_path):
    with (
        pytest.raises(
            StorageError, match=f"wanted to write {tmp_path}, found: No such file or directory: .*absent/file"
        ),
        storage_errors(tmp_path),
    ):
        (tmp_path / "absent" / "file").write_text("1")


def test_of_a_descriptor_no_number_is_named(tmp_path):
    with pytest.raises(StorageError, match="found: Bad file descriptor; make room"), storage_errors(tmp_path):
        os.fchmod(9999, 0o600)
    with pytest.raises(StorageError, match="found: Is it a number; make room"), storage_errors(tmp_path):
        raise OSError(9, "Is it a number", 9999)
