"""Each key of both files is read, not only declared, checked and documented: as far as its name tells, which for `url`
is not far."""

import re
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from gangline.spec.config.line import Line
from gangline.spec.config.site import Site

SOURCES = Path(__file__).resolve().parents[2] / "src" / "gangline"
DECLARED = {SOURCES / "spec" / name for name in ("line.py", "site.py", "rules_line.py", "rules_site.py")}
READ = "\n".join(path.read_text() for path in SOURCES.rglob("*.py") if path not in DECLARED)


def keys(table, above=()):
    for name, kind in get_type_hints(table).items():
        if name not in {each.name for each in fields(table)}:
            continue
        yield ".".join([*above, name])
        for inner in (kind, *get_args(kind)):
            for each in (inner, *get_args(inner)):
                if isinstance(each, type) and is_dataclass(each):
                    yield from keys(each, (*above, name))


@pytest.mark.parametrize("table", [Line, Site])
def test_no_key_is_declared_that_no_code_reads(table):
    unread = [key for key in keys(table) if not re.search(rf"[.\"']{key.rpartition('.')[2]}\b", READ)]
    assert unread == []
