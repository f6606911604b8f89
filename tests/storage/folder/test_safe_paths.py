"""Deletion of folders that others wrote: whole, whatever their permissions, and nothing that a link leads to."""

import os
import subprocess

from tests.attacks.canaries import plain_python
from tests.attacks.machine_users import NOBODY, ROOT, require_users

from gangline.storage.folder.safe_paths import delete_tree


def test_a_folder_without_permissions_is_deleted_and_links_are_not_followed(tmp_path):
    require_users(bubblewrap=False)
    private, folder = tmp_path / "private", tmp_path / "gang"
    (private / "inner").mkdir(parents=True)
    (private / "inner").chmod(0o500)
    (folder / "closed" / "inner").mkdir(parents=True)
    (folder / "closed" / "inner" / "file").touch()
    (folder / "link").symlink_to(private / "inner")
    for path in (folder / "closed" / "inner", folder / "closed"):
        path.chmod(0)
    for path in (tmp_path, *tmp_path.rglob("*"), folder / "closed" / "inner", folder / "closed" / "inner" / "file"):
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    code = "import pathlib, gangline.storage.folder.safe_paths as paths; paths.delete_tree(pathlib.Path('gang'))"
    done = subprocess.run(
        [plain_python(), "-c", code], cwd=tmp_path, user=NOBODY, group=NOBODY, extra_groups=(), check=False,
        env={"PYTHONPATH": str(ROOT / "src")}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not folder.exists()
    assert (private / "inner").stat().st_mode & 0o777 == 0o500
    delete_tree(folder)
