"""Data sources that a line may name outside its commit: store keys and installed packages. Pure text."""

import re
from dataclasses import dataclass

from gangline.spec.config.problems import ConfigProblem, FileError, show
from gangline.spec.dataset import NAME, PREFIX

WANTED = "a key below a data prefix of the site (store.data), or a file of the project's own runs"
MOST_ENTRIES = 100
"""Most entries of `data.text`, and of `data.shards`."""
RESERVED = frozenset(
    {"runs", "models", "projects", "blobs", "images", "logs", "open", "bisects", "probe", "datasets", "pointers"}
)
"""First segments of the keys that gangline writes itself: never data of the site."""
SCHEME = "dataset:"
REFERENCE = re.compile(rf"{SCHEME}(?P<name>{NAME.pattern})(@(?P<version>[0-9a-f]{{8}}|{NAME.pattern}))?")
"""Data set as a line names it, with a version or an alias."""

_OPEN_NAME = re.compile(rf"{PREFIX}{NAME.pattern}/")
_OF_A_RUN = re.compile(r"runs/(?P<project>[^/]+)/(?:[0-9a-f]{40}|[0-9a-f]{64})/[^/]+/(?P<file>[^/]+)(?:/.*)?")
_OF_DRIVERS = frozenset({"record.json", "lease.json"})


@dataclass(frozen=True, kw_only=True, slots=True)
class DataAccess:
    """What the data of one run may name."""

    prefixes: tuple[str, ...] = ()
    """Prefixes of the store, each with a slash at its end."""
    project: str | None = None
    """Whose runs may be read; None: no project's."""
    packages: tuple[str, ...] | None = None
    """Installed packages; None: any."""

    def demand_key(self, place: str, key: str) -> None:
        """Raises ConfigError, naming `place` (a key of line.toml), unless `key` may be read."""
        below = tuple(prefix for prefix in self.prefixes if not prefix.startswith(PREFIX))
        if key.startswith(below) or (self.project is not None and _is_of_own_run(key, self.project)):
            return
        works = f"{below[0]}NAME works" if below else "let the site name a prefix in store.data"
        raise FileError("line.toml", [ConfigProblem(place, WANTED, foreign(key, self.project) or show(key), works)])

    def demand_dataset(self, place: str, name: str) -> None:
        """Raises ConfigError, naming `place`, unless the data set may be read: a fork's line reads those of the site's
        prefixes `datasets/NAME/`."""
        if self.project is not None or f"{PREFIX}{name}/" in self.prefixes:
            return
        opened = [prefix.removeprefix(PREFIX).rstrip("/") for prefix in self.prefixes if prefix.startswith(PREFIX)]
        wanted = f"a data set that a fork's line may read ({', '.join(opened) or 'none'})"
        works = f'store.data = ["{PREFIX}{name}/"] of the site opens it'
        raise FileError("line.toml", [ConfigProblem(place, wanted, show(name), works)])

    def demand_package(self, place: str, name: str) -> None:
        """Raises ConfigError, naming `place`, unless files of the package may be read."""
        if self.packages is None or name in self.packages:
            return
        wanted = f"a package that a fork's line may read ({', '.join(self.packages)})"
        works = "commit the files and name them by repo:, or use a data prefix of the site (store.data)"
        raise FileError("line.toml", [ConfigProblem(place, wanted, show(name), works)])


def foreign(key: str, project: str | None) -> str | None:
    """What `key` is, where no site lets a line of `project` read it; None: that is for the site to say."""
    match = _OF_A_RUN.fullmatch(key)
    if match and match["file"] in _OF_DRIVERS:
        return f"{show(key)}, which is for drivers alone"
    if match and project is None:
        return f"{show(key)}, of a run, which a fork's line does not read"
    if match and match["project"] != project:
        return f"{show(key)}, of a run of another project"
    if not match and key.partition("/")[0] in RESERVED:
        return f"{show(key)}, which gangline keeps for itself"
    return None


def _is_of_own_run(key: str, project: str) -> bool:
    """Is this a file of a run of `project` that others than its drivers read?"""
    return _OF_A_RUN.fullmatch(key) is not None and foreign(key, project) is None


def is_data_prefix(prefix: str) -> bool:
    """May a site give the keys below `prefix` to data? `datasets/NAME/` opens a data set to forks, and no key."""
    if _OPEN_NAME.fullmatch(prefix):
        return True
    segments = prefix.split("/")
    named = all(re.fullmatch(r"[A-Za-z0-9._-]+", segment) and segment not in (".", "..") for segment in segments[:-1])
    return len(segments) > 1 and named and not segments[-1] and segments[0] not in RESERVED
