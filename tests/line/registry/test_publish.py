"""A passed run becomes a version once, whole or not at all."""

from dataclasses import replace

import pytest
from tests.line.registry.desk import git

from gangline.line.registry.types import Published


def test_a_passed_run_becomes_a_signed_tagged_version(desk):
    published = desk.publish()
    assert isinstance(published, Published)
    print(published.message)
    print((desk.root / "work" / desk.record.run.id / "model" / "card.md").read_text())
    print((desk.root / "work" / desk.record.run.id / "model" / "provenance.json").read_text())
    assert published.version == 1
    assert published.tagged == "model/bytegpt/v1"
