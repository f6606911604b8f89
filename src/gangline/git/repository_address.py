"""Address of a repository: the place that its commits come from, in one form for all URLs of that place.

`https://github.com/acme/model.git`, `git@github.com:acme/model` and `ssh://git@github.com:22/acme/model/` are
`github.com/acme/model`. A folder of this machine is its absolute path, and a clone of a folder has that folder's
address. Nothing that a commit holds is read: addresses are settings of the clone.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from gangline.git.command import run_git

SETTING = "gangline.repository"
"""Setting of a clone that names its repository in place of the remote `origin`."""
_FOLDED_HOSTS = frozenset({"github.com", "gitlab.com", "bitbucket.org", "codeberg.org"})
"""Forges where `Acme/Model` and `acme/model` are one repository."""
_SCP = re.compile(r"(?:(?P<user>[^/@:]*)@)?(?P<host>\[[0-9a-fA-F:.]+\]|[^/@:]+):(?!:)(?P<path>.*)", re.DOTALL)
_NO_PERSON = ("git", None, "")
_UNCHECKED = {"safe.directory": "*"}
"""Repositories of other users are read: nothing of them is run."""


@dataclass(frozen=True, slots=True)
class RepositoryAddress:
    """A repository, as a clone of it on this machine knows it."""

    text: str
    """`HOST/PATH` of a repository on a server, an absolute path of one on this machine."""
    places: tuple[Path, ...] = ()
    """Folders of this machine that it was cloned through, the clone itself first."""

    @property
    def names(self) -> frozenset[str]:
        """Addresses that a clone may have had before: a folder that got a remote is still that folder."""
        return frozenset((self.text, *map(_path_text, self.places)))

    def holds(self, store_url: str) -> bool:
        """Whether a store lies inside of the repository, so that no other repository has it."""
        folder = Path(store_url.removeprefix("file:"))
        return store_url.startswith("file:") and any(folder.is_relative_to(place) for place in self.places)


def read_address(folder: Path) -> RepositoryAddress | None:
    """Address of the repository that holds `folder`; None where no repository is there.

    That is `gangline.repository` of its configuration, else the URL of `origin` as git expands it, else its own
    folder. Where this is a folder of this machine, the address is that of the repository there.
    """
    places: list[Path] = []
    place = folder
    while (top := _top(place)) is not None and top not in places:
        places.append(top)
        url = _url(top)
        if url is None or not url.startswith("/"):
            return RepositoryAddress(url or _path_text(top), tuple(places))
        place = Path(url)
    return RepositoryAddress(_path_text(place), tuple(places)) if places else None


def address_of(url: str) -> str:
    """The address of a URL as git takes it, of an absolute path, or of an address; two of one repository are equal.

    The port of a server is left out, since a forge answers https and ssh at different ones.
    """
    if "://" in url:
        scheme, _, rest = url.partition("://")
        if scheme == "file":
            return _path_text(Path(unquote(rest)).resolve())
        try:
            parts = urlsplit(url)
        except ValueError:  # no host that could be read; git will say so
            return url
        return _remote(parts.username, re.sub(r":\d*\Z", "", parts.netloc.rpartition("@")[2]), unquote(parts.path))
    if url.startswith(("/", "~")):
        return _path_text(Path(url).expanduser().resolve())
    if (scp := _SCP.fullmatch(url)) is not None:
        return _remote(scp["user"], scp["host"], scp["path"])
    host, _, path = url.partition("/")
    return _remote(None, host, f"/{path}")


def _remote(user: str | None, host: str, path: str) -> str:
    host = host.lower().strip("[]").rstrip(".")
    whole = "/".join(part for part in path.split("/") if part).removesuffix(".git")
    if host in _FOLDED_HOSTS:
        whole = whole.lower()
    is_of_a_home = not path.startswith("/") or path.startswith("/~")
    person = f"{user}@" if is_of_a_home and user not in _NO_PERSON else ""
    return f"{person}{host}/{whole}" if whole else f"{person}{host}"


def _path_text(path: Path) -> str:
    """A path as text that a record can hold, whatever bytes its names have."""
    return os.fsencode(path).decode(errors="backslashreplace")


def _top(place: Path) -> Path | None:
    """Main work tree of the repository that holds `place`, or its git folder where it has none."""
    if not place.is_dir():
        return None
    done = run_git(place, "rev-parse", "--path-format=absolute", "--git-common-dir", settings=_UNCHECKED)
    if done.returncode:
        return None
    common = Path(os.fsdecode(done.stdout).strip("\n")).resolve()
    return common.parent if common.name == ".git" else common


def _url(top: Path) -> str | None:
    """The address that the repository at `top` has by its own configuration; None: it has none."""
    asked = ("config", "--local", "--get-regexp", r"^(gangline\.repository|remote\.origin\.url)$")
    rows = dict(row.split(" ", 1) for row in run_git(top, *asked, settings=_UNCHECKED).text.split("\n") if " " in row)
    if SETTING in rows:
        return address_of(rows[SETTING])
    if not rows:
        return None
    url = run_git(top, "remote", "get-url", "origin", settings=_UNCHECKED).text.partition("\n")[0]
    is_path = "://" not in url and (":" not in url or "/" in url.partition(":")[0])
    if not is_path:
        return address_of(url)
    path = (top / url).resolve()
    bare = path.with_name(f"{path.name}.git")  # git takes it where there is no folder without the ending
    return str(bare if bare.is_dir() and not path.is_dir() else path)
