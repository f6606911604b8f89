"""`gangline emit` refuses what it would otherwise pass over in silence."""

from pathlib import Path

import pytest

from gangline.cli.commands.emit import command
from gangline.errors import UsageError


def test_an_unknown_kind_is_refused_with_those_there_are():
    with pytest.raises(UsageError, match="trainjob, job, jobset, runtime, kfp"):
        command("moon")


@pytest.mark.parametrize(
    ("kind", "options"),
    [("kfp", {"check": True}), ("kfp", {"cluster": Path("facts.json")}), ("runtime", {"check": True})],
)
def test_options_that_a_kind_has_no_use_for_are_refused(kind, options):
    with pytest.raises(UsageError, match=f"leave them out for {kind}"):
        command(kind, **options)
