"""Symbolic links of a tree as copies: which file's content a path gets, by arithmetic on paths alone."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import PurePosixPath

from gangline.spec.config.problems import refusal
from gangline.storage.objects.code_layer import MAX_FILES

_MAX_HOPS = 40
"""Links that one path may follow, as in Linux."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SymlinkResolver:
    """The symbolic links of a tree, followed inside it."""

    targets: Mapping[str, str]
    """Path of each link to what it says."""
    files: frozenset[str]
    """Paths of the regular files of the tree."""
    wanted: frozenset[str]
    """Links that are to become copies."""
    _folders: frozenset[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Find the folders of the tree."""
        folders = {str(folder) for path in (*self.files, *self.targets) for folder in PurePosixPath(path).parents}
        object.__setattr__(self, "_folders", frozenset(folders))

    def copies(self) -> Iterator[tuple[str, str]]:
        """(path of the copy, path of the file it is of), for every wanted link.

        Raises:
            ConfigError: A link leaves the tree, points at nothing of it, or holds itself.
        """
        every = chain.from_iterable(self._expand(link, link, ()) for link in sorted(self.wanted))
        for number, copy in enumerate(every, start=1):
            if number > MAX_FILES:
                raise refusal(f"the links make more than {MAX_FILES} copies; {_remedy(copy[0])}")
            yield copy

    def _expand(self, place: str, link: str, inside: tuple[str, ...]) -> Iterator[tuple[str, str]]:
        """Copies for `link`, as seen at `place`; `inside` are the folders that are being copied."""
        real = self.real(link)
        if real in self.files:
            yield place, real
            return
        below = real + "/" if real else ""
        if real in inside or f"{link}/".startswith(below):
            raise refusal(f"the link {link} points at a folder that holds it; {_remedy(link)}")
        found = False
        for path in sorted(path for path in self.files if path.startswith(below)):
            found = True
            yield f"{place}/{path.removeprefix(below)}", path
        for path in sorted(path for path in self.targets if path.startswith(below)):
            found = True
            yield from self._expand(f"{place}/{path.removeprefix(below)}", path, (*inside, real))
        if not found:
            raise refusal(f"the link {link} points at {self.targets[link]!r}, which the commit lacks; {_remedy(link)}")

    def real(self, link: str) -> str:
        """Path that `link` leads to, relative to the tree; "" is the tree itself."""
        waiting = link.split("/")[::-1]
        done: list[str] = []
        hops = 0
        while waiting:
            part = waiting.pop()
            if part in {"..", "."}:
                self._require_folder(done, link)
            if part == "..":
                if not done:
                    raise refusal(f"the link {link} leads out of the repository; {_remedy(link)}")
                done.pop()
            elif part not in {"", "."}:
                done.append(part)
            target = self.targets.get("/".join(done))
            if target is not None:
                hops += 1
                _check_hop(link, target, hops)
                done.pop()
                waiting += target.split("/")[::-1]
        return "/".join(done)

    def _require_folder(self, done: list[str], link: str) -> None:
        """A path may go on from a folder only, as the file system has it."""
        if done and (path := "/".join(done)) not in self._folders:
            raise refusal(
                f"the link {link} leads through {path!r}, which is not a folder of the commit; {_remedy(link)}"
            )


def _check_hop(link: str, target: str, hops: int) -> None:
    if target.startswith("/"):
        raise refusal(f"the link {link} leads out of the repository, through {target!r}; {_remedy(link)}")
    if hops > _MAX_HOPS:
        raise refusal(f"the link {link} leads in a circle; {_remedy(link)}")


def _remedy(link: str) -> str:
    return f'commit the files themselves, or leave it out: project.exclude = ["{link}"]'
