"""What the other side hears of an order: why no run was born, a comment that came late, tags of published models.

Trouble with a forge is logged, and where there is a run it stands in its record; it never fails an order.
"""

import structlog

from gangline.errors import ConfigError, GanglineError, StorageError
from gangline.line.clock import now
from gangline.line.clones import Clones
from gangline.line.forge.comment import publish_comment
from gangline.line.forge.protocol import Status
from gangline.line.record_store import RecordStore
from gangline.line.states import add_event, stage
from gangline.line.strangers import clean
from gangline.serve.desk import ServiceDesk
from gangline.serve.orders.sources import Source, source_of
from gangline.serve.types import Order
from gangline.spec.record import Record

log = structlog.get_logger()


class Telling:
    def __init__(self, desk: ServiceDesk, clones: Clones) -> None:
        self._desk = desk
        self._clones = clones

    def listen(self, source: Source) -> None:
        """Which versions of models others have published: their numbers are taken."""
        try:
            source.bring_tags(self._clones)
        except StorageError as error:  # one that stands here otherwise is told when it is sent
            log.warning("tags_not_brought", project=source.project, cause=str(error))

    def ended(self, order: Order, record: Record) -> None:
        """Of a run that has ended: what its own driver could not tell."""
        if order.pull_request is not None and record.commit.pull_request is None:
            self._comment(order, record)
        if stage(record, "publish").state == "done":
            self._send_tags(order, record)

    def refused(self, order: Order, source: Source, commit: str, error: ConfigError) -> str:
        """No run can be born of this line: whoever pushed it hears so at the forge, in the sentence returned."""
        said = clean(str(error), limit=400)
        if source.forge is not None and source.token is not None:
            status = Status(context="gangline/build", state="error", description=said[:140])
            try:
                source.forge.set_status(source.repository, commit, status)
            except GanglineError as trouble:
                log.warning("status_not_set", order=order.id, cause=str(trouble))
        return said

    def _comment(self, order: Order, record: Record) -> None:
        """The run began before its pull request was opened, and told nobody there."""
        try:
            publish_comment(self._desk.site, self._desk.environ, record, pull_request=order.pull_request)
        except GanglineError as error:
            log.warning("comment_not_written", order=order.id, run=record.run.id, cause=str(error))

    def _send_tags(self, order: Order, record: Record) -> None:
        """The tag of the published version stands in our clone; people look for it where they pushed."""
        try:
            source_of(self._desk, order).send_tags(self._clones)
        except GanglineError as error:
            log.warning("tags_not_sent", order=order.id, run=record.run.id, cause=str(error))
            said = str(error)
            RecordStore.of(self._desk.store, record).change(
                lambda each: add_event(each, now=now(), stage="publish", kind="registry", text=said)
            )
