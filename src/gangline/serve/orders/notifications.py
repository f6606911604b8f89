"""Notifications to the forge about an order: the reason why no run started, late comments, tags of published models.

A forge error is logged, and written to the record where there is a run; it never fails an order.
"""

import structlog

from gangline.errors import ConfigError, GanglineError, StorageError
from gangline.forge.protocol import CommitStatus
from gangline.forge.pull_request_comment import publish_comment
from gangline.git.clones import Clones
from gangline.line.record.states import add_event
from gangline.line.record.store import RecordStore
from gangline.sanitize import clean
from gangline.serve.context.service_context import ServiceContext
from gangline.serve.database.types import Order
from gangline.serve.orders.sources import CommitSource, source_of
from gangline.spec.record import Record
from gangline.spec.run_flags import stage
from gangline.units import now

log = structlog.get_logger()


class OrderNotifications:
    """Reports the results of orders to their forge: commit states, comments and tags."""

    def __init__(self, context: ServiceContext, clones: Clones) -> None:
        self._context = context
        self._clones = clones

    def fetch_published_tags(self, source: CommitSource) -> None:
        """Which versions of models others have published: their numbers are taken."""
        try:
            source.fetch_model_tags(self._clones)
        except StorageError as error:  # a tag that differs here is reported when it is sent
            log.warning("tags_not_brought", project=source.project, cause=str(error))

    def run_ended(self, order: Order, record: Record) -> None:
        """Report what the driver of an ended run could not report."""
        if order.pull_request is not None and record.commit.pull_request is None:
            self._comment(order, record)
        if stage(record, "publish").state == "done":
            self._send_tags(order, record)

    def commit_refused(self, order: Order, source: CommitSource, commit: str, error: ConfigError) -> str:
        """No run can be made of this line: the forge shows its author the sentence returned."""
        detail = clean(str(error), limit=400)
        if source.forge is not None and source.token is not None:
            status = CommitStatus(context="gangline/build", state="error", description=detail[:140])
            try:
                source.forge.set_status(source.repository, commit, status)
            except GanglineError as forge_error:
                log.warning("status_not_set", order=order.id, cause=str(forge_error))
        return detail

    def _comment(self, order: Order, record: Record) -> None:
        """The run began before its pull request was opened, and has no comment there."""
        try:
            publish_comment(self._context.site, self._context.environ, record, pull_request=order.pull_request)
        except GanglineError as error:
            log.warning("comment_not_written", order=order.id, run=record.run.id, cause=str(error))

    def _send_tags(self, order: Order, record: Record) -> None:
        """The tag of the published version is in our clone alone; push it to where people look for it."""
        try:
            source_of(self._context, order).push_model_tags(self._clones)
        except GanglineError as error:
            log.warning("tags_not_sent", order=order.id, run=record.run.id, cause=str(error))
            detail = str(error)
            RecordStore.of(self._context.store, record).change(
                lambda each: add_event(each, now=now(), stage="publish", kind="registry", text=detail)
            )
