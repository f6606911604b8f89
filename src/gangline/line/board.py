"""The board of a run on the site's Grafana: an address, and the link in the record that leads to it."""

from dataclasses import replace
from urllib.parse import urlencode

from gangline.line.context import Context
from gangline.metrics.times import made_at
from gangline.spec.record import Record
from gangline.spec.site import Site

COMMIT_BOARD = "gangline-commit"
_BEFORE_SECONDS = 60


def board_of(record: Record, site: Site) -> str | None:
    """From a minute before the run was made until now; None where the site names no Grafana."""
    if site.metrics.grafana_url is None:
        return None
    asked = {
        "var-project": record.run.project,
        "var-run": record.run.id,
        "from": str(int(1000 * (made_at(record) - _BEFORE_SECONDS))),
        "to": "now",
    }
    if site.serve.public_url:
        asked["var-service"] = site.serve.public_url.rstrip("/")
    return f"{site.metrics.grafana_url.rstrip('/')}/d/{COMMIT_BOARD}?{urlencode(asked)}"


def link_board(ctx: Context) -> None:
    """Say in the record where its board is; written once."""
    url = board_of(ctx.record, ctx.site)
    if url is not None and ctx.record.links.get("grafana") != url:
        ctx.change(lambda record: replace(record, links=record.links | {"grafana": url}))
