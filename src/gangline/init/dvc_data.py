"""Data that DVC tracks for a repository, as notes of its line: where they are, and what the site has to name."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gangline.data.pointers import (
    CONFIG,
    LOCK,
    STAGES,
    Pointer,
    is_dvc_file,
    read_dvc_file,
    read_lock,
    read_remotes,
    source_url,
)
from gangline.errors import ConfigError

_SHOWN = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class DvcData:
    """Files and folders that DVC tracks for a repository."""

    pointers: tuple[Pointer, ...] = ()
    url: str = ""
    """URL of the source that the default remote is read by; empty: it has none."""
    problem: str = ""

    @staticmethod
    def of(files: Mapping[str, bytes], *, base: str) -> "DvcData":
        """Data of a repository with these files; relative remotes begin at the folder `base`."""
        if CONFIG not in files:
            return DvcData()
        try:
            pointers = [each for path, data in files.items() if is_dvc_file(path) for each in read_dvc_file(path, data)]
            if LOCK in files:
                pointers += read_lock(LOCK, files[LOCK], files.get(STAGES))
            url = source_url(read_remotes(files[CONFIG]).url_of(None), base)
        except ConfigError as error:
            return DvcData(problem=str(error))
        return DvcData(pointers=tuple(pointers), url=url)

    def tracks(self, path: str) -> bool:
        """Whether DVC has the path, so that git ignores it for good reason."""
        return any(f"{path}/".startswith(f"{each.path}/") for each in self.pointers)

    def notes(self, reads: Sequence[str]) -> Iterator[str]:
        """Advice for the owner, whose script reads the paths `reads`."""
        if self.problem:
            yield f"data of DVC are not found: {self.problem}"
        placed = sorted(each.path for each in self.pointers if not each.is_output)
        made = [
            each for each in self.pointers
            if each.is_output and any(f"{path}/".startswith(f"{each.path}/") for path in reads)
        ]  # fmt: skip
        if placed:
            more = f" and {len(placed) - _SHOWN} more" if len(placed) > _SHOWN else ""
            yield (
                f"DVC tracks {', '.join(placed[:_SHOWN])}{more}: a run has them once site.toml names their remote:"
                f' [source.dvc] url = "{self.url}"'
            )
        if made:
            globs = ", ".join(f'"{each.path}/**"' if each.is_folder else f'"{each.path}"' for each in made)
            yield (
                f'dvc.lock has what other stages wrote; a run gets it by project.include = ["**", {globs}] and'
                f' [source.dvc] url = "{self.url}" of site.toml'
            )
