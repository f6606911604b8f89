"""What went in: whose versions they are, and no digest of what a line does not declare."""

from dataclasses import replace

from tests.report import records

from gangline.report.facts import reproduce_commands
from gangline.report.inputs import NO_DATA, input_digests, version_rows
from gangline.report.run.html import render_html
from gangline.report.run.markdown import render_markdown
from gangline.spec.program_files import RuntimeReport

DRIVER = {"gangline": "0.1.0", "numpy": "2.4.6", "python": "3.11.7", "torch": "2.15.0"}


def ran(**packages):
    made = records.passed()
    report = RuntimeReport(python="3.12.1", packages=packages) if packages else None
    return replace(made, ran=report, inputs=replace(made.inputs, versions=DRIVER, data=NO_DATA))


def test_versions_are_those_that_ranks_imported_and_the_drivers_are_called_so():
    rows = version_rows(ran(numpy="1.26.4", torch="2.9.1"))
    assert rows == [
        ("numpy", "1.26.4"), ("python", "3.12.1"), ("torch", "2.9.1"), ("gangline of the driver", "0.1.0")
    ]  # fmt: skip
    assert ("torch of the driver", "2.15.0") not in version_rows(ran(numpy="1.26.4")), "no rank imported it"
    assert version_rows(ran()) == [(f"{name} of the driver", version) for name, version in DRIVER.items()]


def test_no_digest_stands_for_data_that_no_line_declares():
    record = ran()
    assert dict(input_digests(record))["data"] == "- (none declared)"
    for text in (render_html(record), render_markdown(record)):
        assert "- (none declared)" in text
        assert NO_DATA not in text
    declared = replace(record, inputs=replace(record.inputs, data="d" * 64))
    assert dict(input_digests(declared))["data"] == "d" * 64


def test_commands_of_a_repository_without_origin_fetch_nothing():
    made = records.passed()
    fetched, here = (
        reproduce_commands(replace(made, commit=replace(made.commit, repository=address)))[0]
        for address in ("github.com/acme/gpt", "/work/gpt")
    )
    assert fetched == f"git fetch origin && {here}"
    assert here == f"git checkout --detach {made.commit.sha}"
