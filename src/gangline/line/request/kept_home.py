"""Home of model code that is kept from run to run on this machine, with what its runs download and compile.

Runs that may publish share one with each other alone, by branch: what an experiment, a dirty tree or the commit of
another branch leaves in its home changes nothing that is published.
"""

import re
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from gangline.spec.record import Record
from gangline.spec.run_flags import may_publish

FOLDER = "home"
"""Folder of these homes in `.gangline`."""
_MOST_CHARACTERS = 40


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptHome:
    """The home of runs of a branch, or of no branch, that may all publish or may all not."""

    branch: str | None
    may_publish: bool

    @property
    def path(self) -> Path:
        """Path below `.gangline/home`; branches whose names differ have different ones."""
        name = self.branch or ""
        slug = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-")[:_MOST_CHARACTERS] or "no-branch"
        kind = "published" if self.may_publish else "other"
        return Path(f"{slug}-{sha256(name.encode('utf-8', 'replace')).hexdigest()[:8]}", kind)


def kept_home_of(record: Record) -> KeptHome | None:
    """Home of the run's code; None for a fork, each gang of which has one of its own."""
    if record.commit.trust == "fork":
        return None
    return KeptHome(branch=record.commit.branch, may_publish=may_publish(record))
