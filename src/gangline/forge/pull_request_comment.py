"""Comment of a run on its pull request: its text, when it is written, and when the pull request has moved on."""

from collections.abc import Mapping
from dataclasses import replace

from gangline.forge.factory import forge_of_project, open_forges
from gangline.forge.protocol import COMMENT_LIMIT, Forge
from gangline.forge.status_messages import run_page
from gangline.report.run.markdown import render_markdown
from gangline.spec.config.site import Site
from gangline.spec.record import Record


def comment_marker(project: str) -> str:
    """Hidden line that our comment on a project's pull request carries."""
    return f"<!-- gangline:{project} -->"


def comment_text(record: Record, public_url: str | None) -> str:
    """Marker and comment, within what every forge takes."""
    head = comment_marker(record.run.project) + "\n"
    page = run_page(record, public_url)
    pages = {"run": page, "report": f"{page}/report"} if page and public_url else {}
    return head + render_markdown(replace(record, links=record.links | pages), limit=COMMENT_LIMIT - len(head))


def publish_comment(
    site: Site, environ: Mapping[str, str], record: Record, *, pull_request: int | None = None
) -> str | None:
    """Write the record as the one comment of its pull request.

    Args:
        site: Whose forge holds the project.
        environ: For secret references.
        record: The current one.
        pull_request: Where it was opened after the run began and the record knows of none.

    Returns:
        The comment's URL; None where there is no place for it: no pull request, no forge or token, or one that has
        moved on to a newer commit.

    Raises:
        GanglineError: The forge is away or refuses.
    """
    place = forge_of_project(site, record.run.project)
    if place is None or site.forge[place[0]].token is None or record.commit.patch is not None:
        return None
    return write_comment(open_forges(site, environ)[place[0]], place[1], site, record, pull_request=pull_request)


def write_comment(
    forge: Forge, repository: str, site: Site, record: Record, *, pull_request: int | None = None
) -> str | None:
    """Do what `publish_comment` does, on a forge that is open."""
    number = pull_request or record.commit.pull_request
    if number is None or record.run.verdict == "superseded":
        return None
    head = forge.head(repository, forge.pull_ref(number))
    if head is not None and head.commit != record.commit.sha:
        return None
    text = comment_text(record, site.serve.public_url)
    return forge.upsert_comment(repository, number, comment_marker(record.run.project), text)
