"""Deletion of folders that others wrote: whole, whatever their permissions, and nothing that a link leads to."""

import os

from tests.attacks.machine_users import NOBODY, require_users, run_as_nobody

from gangline.storage.folder.safe_paths import delete_tree


def test_a_folder_without_permissions_is_deleted_and_links_are_not_followed(tmp_path):
    require_users(bubblewrap=False)
    private, folder = tmp_path / "private", tmp_path / "gang"
    (private / "inner").mkdir(parents=True)
    (private / "inner").chmod(0o500)
    (folder / "closed" / "inner").mkdir(parents=True)
    (folder / "closed" / "inner" / "file").touch()
    (folder / "link").symlink_to("../private/inner")  # this user cannot look at the folders above
    for path in (folder / "closed" / "inner", folder / "closed"):
        path.chmod(0)
    for path in (tmp_path, *tmp_path.rglob("*"), folder / "closed" / "inner", folder / "closed" / "inner" / "file"):
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    code = "import pathlib, gangline.storage.folder.safe_paths as paths; paths.delete_tree(pathlib.Path('gang'))"
    run_as_nobody(code, cwd=tmp_path)
    assert not folder.exists()
    assert (private / "inner").stat().st_mode & 0o777 == 0o500
    delete_tree(folder)
