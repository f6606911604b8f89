"""Line of a plan whose updates of matrices travel during the next forward pass: what more computing would hide."""

from gangline.report.text import step_time
from gangline.spec.forecast import UpdateTraffic


def update_line(updates: UpdateTraffic | None) -> list[str]:
    """Empty: no updates travel so, or their times are not known."""
    if updates is None:
        return []
    granted = step_time(updates.hiding_seconds) if updates.hiding_seconds else "no"
    line = (
        f"{granted} computing counts as hiding them ([plan] overlap of site.toml); if all of the pass did, it would "
        f"wait for {step_time(updates.least_exposed_seconds)}"
    )
    return [f"{'':9}{line}"]
