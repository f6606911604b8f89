"""The reference of keys: fresh, complete, and read by the code it describes."""

import re
from pathlib import Path

from tools.key_tables import reference_of, write_reference

from gangline.spec.config.line import Line
from gangline.spec.config.load import effective, load_line

ROOT = Path(__file__).parents[2]


def test_committed_reference_is_fresh(tmp_path):
    for path in write_reference(tmp_path):
        assert (ROOT / "docs" / "reference" / path.name).read_text() == path.read_text(), "make schemas rewrites it"


MAY_BE_EMPTY = ("gate.quality", "train.start.fused", "data.mix", "plan.transformer", "gate.serve", "federated",
                "train.parameter_server")  # fmt: skip
"""Keys of tables that a line repeats, or leaves out."""


def test_every_key_of_the_effective_line_is_in_the_reference():
    sections = dict(re.findall(r"^## `\[+([a-z.]+)\]+`\n(.*?)(?=^## |\Z)", reference_of("line", Line), re.M | re.S))
    keys = effective(load_line(ROOT / "examples" / "bytegpt"))
    for key in keys:
        table, _, name = key.rpartition(".")
        if table.split(".")[0] not in ("model", "optimizer") and key not in MAY_BE_EMPTY:
            assert f"| `{name}` |" in sections[table], key
