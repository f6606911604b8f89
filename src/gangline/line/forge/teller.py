"""Tells a forge how a run goes: an observer around another one. Nothing that a forge does or fails to do ends a run.

Statuses go out when their state changes, and at most once a minute while only the words move; while a gang waits the
comment of its pull request says for whom. The final comment is left to the report stage.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from gangline.errors import GanglineError, StorageError
from gangline.launch.protocol import GangEvent
from gangline.line.context import Context, unchanged
from gangline.line.forge.comment import comment_at
from gangline.line.forge.open import claimed, open_forges
from gangline.line.forge.postman import Letter, Postman
from gangline.line.forge.protocol import Forge, Status
from gangline.line.forge.words import NOT_BEGUN, run_page, statuses
from gangline.line.observer import Observer
from gangline.report.progress import Outlook, Progress
from gangline.spec.record import Record, StageInfo, Waiting

LAST_WORD_SECONDS = 15.0
"""How long the end of a run waits for a forge."""
_COMMENT = "comment"


@contextmanager
def told_to_forge(ctx: Context) -> Iterator[None]:
    """While the block drives, the forge that holds the project is told; without one, or a token, nothing happens."""
    place = claimed(ctx.site, ctx.record.run.project)
    if place is None or ctx.site.forge[place[0]].token is None or ctx.record.commit.patch is not None:
        yield
        return
    try:
        forge = open_forges(ctx.site, ctx.environ)[place[0]]
        _link(ctx, forge.commit_url(place[1], ctx.record.commit.sha))
    except GanglineError as error:
        ctx.remember("resolve", "forge", f"no forge is told of this run: {error}")
        yield
        return
    teller = Teller(ctx, forge, place[1])
    ctx.observer = teller
    is_store_away = False
    try:
        yield
    except GanglineError as error:
        is_store_away = isinstance(error, StorageError)
        teller.leave(str(error))
        raise
    finally:
        teller.close(remember=not is_store_away)
        ctx.observer = teller.inner


def _link(ctx: Context, url: str) -> None:
    if ctx.record.links.get("forge") != url:
        ctx.change(lambda record: replace(record, links=record.links | {"forge": url}))


class Teller:
    """An observer around another: what that is told, the forge hears, too."""

    def __init__(self, ctx: Context, forge: Forge, repository: str) -> None:
        self.inner: Observer = ctx.observer
        self._ctx = ctx
        self._forge = forge
        self._repository = repository
        self._postman = Postman(self._deliver)
        self._told: dict[str, Status] = {}
        self._outlook = Outlook()
        self._progress = Progress("")
        self._running: str | None = None
        self._said: set[str] = set()

    def run_started(self, record: Record) -> None:
        self._outlook.learn(record)
        self.inner.run_started(record)
        self._told = {each.context: each for each in statuses(record, url=self._url) if self._was_told(each)}
        self._tell()

    def stage_started(self, name: str) -> None:
        self._progress, self._running = self._outlook.begin(name), name
        self.inner.stage_started(name)
        if name == "report":
            self._postman.withdraw(_COMMENT, seconds=LAST_WORD_SECONDS)
            self._told = self._told if self._ctx.driver.kind == "run" else {}
        self._tell()

    def progress(self, stage: str, event: GangEvent) -> None:
        self._progress.see(event)
        self.inner.progress(stage, event)
        self._tell()
        if event.kind == "waiting":
            self._tell_pull_request(Waiting(who=event.text, until=event.data.get("until") or None))

    def stage_ended(self, name: str, info: StageInfo) -> None:
        self._outlook.stage_ended(name, info)
        self._running = None
        self.inner.stage_ended(name, info)
        self._tell()

    def note(self, text: str) -> None:
        self.inner.note(text)

    def run_ended(self, record: Record) -> None:
        self.inner.run_ended(record)
        self._tell()

    def leave(self, reason: str) -> None:
        """The driver goes, the run stays open: say why, there and to the pull request."""
        if self._ctx.record.run.state == "open":
            self._tell(reason)
            self._tell_pull_request(None)

    def close(self, *, remember: bool) -> None:
        """Send the last word; what went wrong meanwhile becomes an event of the record, where that can be written."""
        self._postman.close(seconds=LAST_WORD_SECONDS)
        self._remember_troubles()
        if self._ctx.pending and remember:
            try:
                self._ctx.change(unchanged)
            except GanglineError as error:
                self.inner.note(f"the record could not be told: {error}")

    def _tell(self, words: str | None = None) -> None:
        self._remember_troubles()
        record = self._ctx.record
        live = self._progress.sentence() if words is None else words
        for status in statuses(record, running=self._running, live=live, url=self._url):
            before = self._told.get(status.context)
            if status != before:
                self._told[status.context] = status
                self._postman.put(status.context, status, urgent=before is None or before.state != status.state)

    @property
    def _url(self) -> str | None:
        return run_page(self._ctx.record, self._ctx.site.serve.public_url)

    def _was_told(self, status: Status) -> bool:
        """A driver of one stage trusts those before it, until the report stage tells all once more."""
        return self._ctx.driver.kind != "run" and (status.state == "success" or status.description == NOT_BEGUN)

    def _tell_pull_request(self, waiting: Waiting | None) -> None:
        record = self._ctx.record
        if record.commit.pull_request is None:
            return
        if record.gang is not None and waiting is not None:
            record = replace(record, gang=replace(record.gang, waiting=waiting))

        def send() -> None:
            comment_at(self._forge, self._repository, self._ctx.site, record)

        self._postman.put(_COMMENT, send, urgent=waiting is None)

    def _deliver(self, letter: Letter) -> None:
        if isinstance(letter, Status):
            self._forge.set_status(self._repository, self._ctx.record.commit.sha, letter)
        else:
            letter()

    def _remember_troubles(self) -> None:
        while not self._postman.troubles.empty():
            sentence = self._postman.troubles.get()
            if sentence not in self._said:
                self._said.add(sentence)
                self._ctx.remember(self._running or "report", "forge", sentence)
