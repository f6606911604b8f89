"""`[environments]` and `[index.NAME]` of a site as frozen data: what environments of ranks are made from."""

from dataclasses import dataclass
from typing import Annotated

from gangline.spec.bounds import Bound


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvironmentsTable:
    """Environments that gangline makes of locks, on the machine that ranks run on."""

    find_links: tuple[str, ...] = ()
    """Absolute paths of folders with wheels, in addition to the indexes."""
    keep_days: Annotated[float, Bound(least=0)] = 30.0
    """`gangline sweep` deletes an environment, or the home of a branch, that no run used for so long."""
    python_downloads: bool = False
    """A Python that this machine lacks is fetched."""


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexTable:
    """One index of packages, as `[index.NAME]`; those of the file come before the public one, in their order."""

    url: str
    """URL of the index's simple API."""
    credentials: str | None = None
    """Reference; the value is `USER:PASSWORD`. Never used for a commit of a fork."""
    default: bool = False
    """This index takes the place of the public one."""
