"""What a gang's program wrote into its code folder and nobody collected: the only copy of it, maybe."""

import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gangline.errors import IntegrityError
from gangline.launch.local.folder import GangFolder
from gangline.spec.outputs import NEVER, OUTPUTS, Outputs


@dataclass(frozen=True, slots=True)
class Uncollected:
    """Files that go with the folder."""

    files: int = 0
    size_bytes: int = 0


def uncollected(folder: GangFolder) -> Uncollected:
    """Files younger than the gang, which the code layer is not, but for those that its collector lists."""
    collected, code = _collected(folder), folder.inside / "code"
    began = (folder.home / "podset.json").stat().st_mtime_ns
    files = size = 0
    for root, folders, names, handle in os.fwalk(code, follow_symlinks=False):
        folders[:] = [each for each in folders if each != NEVER]
        for name in names:
            with suppress(FileNotFoundError):
                found = os.stat(name, dir_fd=handle, follow_symlinks=False)
                path = Path(root, name).relative_to(code).as_posix()
                is_new = stat.S_ISREG(found.st_mode) and found.st_mtime_ns > began
                if is_new and collected.get(path) != found.st_size:
                    files, size = files + 1, size + found.st_size
    return Uncollected(files, size)


def _collected(folder: GangFolder) -> dict[str, int]:
    """Size by path of what the gang says lies in the store."""
    data = folder.read_inside(folder.inside / OUTPUTS)
    try:
        listed = Outputs.from_json(data) if data else None
    except IntegrityError:
        listed = None
    if listed is None:
        return {}
    return {file.path: file.size_bytes for file in (*listed.files, *([listed.metrics] if listed.metrics else ()))}
