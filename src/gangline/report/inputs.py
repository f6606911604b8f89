"""What went into a run, for people: digests of its inputs, versions of what its ranks imported. Pure."""

from gangline.spec.codec import digest
from gangline.spec.record import Record


def imported_versions(record: Record) -> dict[str, str]:
    """Python and packages by version as ranks imported them, and gangline's; empty: no rank reported any."""
    if record.ran is None or not record.ran.packages:
        return {}
    own = {name: version for name, version in record.inputs.versions.items() if name == "gangline"}
    return {**own, **({"python": record.ran.python} if record.ran.python else {}), **record.ran.packages}


def version_rows(record: Record) -> list[tuple[str, str]]:
    """(name, version): of Python and the main packages as ranks imported them, else those of the driver, and so named.

    gangline is the driver's, whatever image the ranks had.
    """
    ran, driver = imported_versions(record), record.inputs.versions
    rows = [(name, ran[name]) for name in driver if name in ran and name != "gangline"]
    others = ("gangline",) if ran else tuple(driver)
    return rows + [(f"{name} of the driver", driver[name]) for name in others if name in driver]


def input_digests(record: Record) -> list[tuple[str, str]]:
    """(name, digest) of what went in; `- (none declared)` of the data of a line that declares none."""
    inputs, plan = record.inputs, record.plan.digest if record.plan else ""
    data = "- (none declared)" if inputs.data == NO_DATA else inputs.data
    rows = [("line", inputs.line), ("code", inputs.code), ("environment", inputs.environment), ("image", inputs.image)]
    sets = [("data sets", ", ".join(inputs.datasets))] if inputs.datasets else []
    return [(name, each or "-") for name, each in (*rows, ("data", data), *sets, ("plan", plan))]


NO_DATA = digest([])
"""Digest of the data of a line that declares none."""
