"""Repositories that real programs recorded, as model repositories: DVC 2.58.2, DVC 3.67.1, Git LFS 3.3.0.

`dvc_recordings/record.sh` made those of DVC; beside each repository lies the remote that `dvc push` filled.
"""

import shutil
from pathlib import Path

from tests.line import repositories

RECORDINGS = Path(__file__).parent / "dvc_recordings"
VERSIONS = ("v2", "v3")
TRAIN, TEST = b"x,y\r\n1,2\r\n3,6\r\n5,10\r\n", b"x,y\n7,14\n"
LFS_OID = "785b0751fc2c53dc14a4ce3d800e69ef9ce1009eb327ccf458afe09c242c26c9"
LFS_DATA = bytes(range(256)) * 4
FILES = {
    "data/train.csv": TRAIN,
    "data/test.csv": TEST,
    "data/images/deep/labels.txt": b"0 cat\r\n1 dog\r\n",
    **{f"data/images/{n}.bin": bytes([n, 0, 255, 13, 10]) * (n + 3) for n in range(3)},
}
"""Content of the files of `.dvc` files when they were recorded."""
FEATURES = {"features/double.csv": b"2\n6\n10\n", "features/count.csv": b"3\n"}
"""Content of the output folder of the recorded stage."""


def dvc_repository(folder: Path, version: str, *, line: str = repositories.LINE, remote: str | None = None) -> Path:
    """A model repository in `folder/work/repo` whose data a real DVC tracks, with its remote in `folder/remote`."""
    repo = folder / "work" / "repo"
    repositories.make_repository(repo, {"line.toml": line, "answer.py": repositories.PROGRAM})
    shutil.copytree(RECORDINGS / version / "repo", repo, dirs_exist_ok=True)
    shutil.copytree(RECORDINGS / version / "remote", folder / "remote")
    config = repo / ".dvc" / "config"
    config.write_text(config.read_text().replace("../../remote", remote or str(folder / "remote")))
    repositories.commit(repo, {})
    return repo


def lfs_repository(folder: Path, *, line: str = repositories.LINE, local: bool = True) -> Path:
    """A model repository with one file of Git LFS, whose content is with the repository where `local`."""
    repo = folder / "repo"
    repositories.make_repository(repo, {
        "line.toml": line, "answer.py": repositories.PROGRAM,
        ".gitattributes": (RECORDINGS / "lfs" / "gitattributes").read_text(),
        "data/w.bin": (RECORDINGS / "lfs" / "w.bin.pointer").read_text(),
    })  # fmt: skip
    if local:
        shutil.copytree(RECORDINGS / "lfs" / "objects", repo / ".git" / "lfs" / "objects")
    return repo
