"""Texts of the four commit statuses of a record, and the link they lead to. Pure."""

from gangline.forge.protocol import STATUS_CONTEXTS, CommitStatus, StatusState
from gangline.report.facts import unjudged_text, verdict_word
from gangline.report.text import clean
from gangline.spec.record import Record, StageInfo
from gangline.spec.run_flags import GOOD, stage

DESCRIPTION = 140
"""Characters of a status; GitHub takes no more."""
NOT_STARTED = "not begun"
_STAGES = dict(
    zip(
        STATUS_CONTEXTS,
        (("build", "resolve", "plan"), ("evaluate", "submit", "train"), ("gate", "prove"), ("publish",)),
        strict=True,
    )
)
"""Stages behind a status; the message of the first one says most."""


def statuses(
    record: Record, *, running: str | None = None, live: str = "", url: str | None = None
) -> list[CommitStatus]:
    """The current status of each stage group.

    Args:
        record: As last written.
        running: Stage that is being started or run right now.
        live: How far that is, or why it waits.
        url: Page that they lead to.
    """
    return [
        CommitStatus(context=context, state=state, description=clean(words, DESCRIPTION), url=url)
        for context, names in _STAGES.items()
        for state, words in (_gate_status(record, {name: stage(record, name) for name in names}, running, live),)
    ]


def _gate_status(
    record: Record, infos: dict[str, StageInfo], running: str | None, live: str
) -> tuple[StatusState, str]:
    failed = next((info for info in infos.values() if info.state == "failed"), None)
    if failed is not None:
        return "failure", failed.message
    if any(info.state == "cancelled" for info in infos.values()):
        return "error", f"{verdict_word(record)}: {record.run.reason}"
    if record.run.state == "ended" and record.run.verdict != "passed" and _unreached_status(infos):
        return "error", f"not reached, as the run was {verdict_word(record)}"
    if all(info.state in GOOD for info in infos.values()):
        said = next((i.message for i in infos.values() if i.state in {"done", "taken"} and i.message), "")
        unjudged = unjudged_text(record.gates) if "gate" in infos else ""
        return "success", f"{unjudged}: {said}" if unjudged else said
    if running in infos:
        return "pending", live or f"{running} runs"
    begun = any(info.state != "waiting" for info in infos.values())
    return "pending", "running" if begun else NOT_STARTED


def _unreached_status(infos: dict[str, StageInfo]) -> bool:
    return any(info.state == "skipped" and info.started is None for info in infos.values())


def run_page(record: Record, public_url: str | None) -> str | None:
    """Link of a status: the service's page, else the page of the run's driver."""
    if public_url:
        return f"{public_url.rstrip('/')}/runs/{record.run.id}"
    links = (record.links.get(name) for name in ("jenkins", "kfp", "report"))
    found = next((link for link in (record.run.driver.url, *links) if link and link.startswith("http")), None)
    return found if found and len(found) <= 1000 else None
