"""Rules of `member.toml` beyond the types of its values."""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from gangline.spec.config.federation_table import MemberTable
from gangline.spec.config.problems import ConfigProblem, show

_KEY_ID = re.compile(r"[0-9a-f]{8}")


def member_rules(member: MemberTable) -> Iterator[ConfigProblem]:
    """Problems of a member's settings."""
    path = PurePosixPath(member.data)
    if not path.is_absolute() or ".." in path.parts or not member.data.isprintable():
        yield ConfigProblem("data", "an absolute path", show(member.data), '"/srv/cohort" works')
    for index, key_id in enumerate(member.signers):
        if not _KEY_ID.fullmatch(key_id):
            yield ConfigProblem(
                f"signers[{index}]", "the id of a key, 8 hex digits", show(key_id), "`gangline keys` lists them"
            )
    if member.approve == "signed" and not member.signers:
        yield ConfigProblem("signers", 'a key, as approve is "signed"', "none", 'approve = "each" asks for every code')
