"""Log configuration of the command line: events on stderr, for people on a terminal, as JSON elsewhere.

Control characters in an event never reach the terminal, be it our event or a library's. A traceback is text of the
event, without the values of variables, which may be secrets.
"""

import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import structlog
from stamina.instrumentation import RetryDetails, get_on_retry_hooks, set_on_retry_hooks
from structlog.dev import ConsoleRenderer, plain_traceback
from structlog.typing import EventDict, Processor, WrappedLogger

from gangline.sanitize import sanitized, to_json, visible

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
SAID_RETRIES = frozenset(4 * 2**power for power in range(16))
"""The fourth, eighth and sixteenth retry are logged; failures that pass within a second are not."""


def set_up_logs(environ: Mapping[str, str]) -> None:
    """Warnings and worse; GANGLINE_LOG=debug|info|warning|error says otherwise."""
    level = LEVELS.get(environ.get("GANGLINE_LOG", "warning"), logging.WARNING)
    people = sys.stderr.isatty()
    processors: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="%H:%M:%S" if people else "iso", utc=not people),
        structlog.processors.format_exc_info,
        _visible_texts,
        ConsoleRenderer(colors=people and not environ.get("NO_COLOR"), exception_formatter=plain_traceback)
        if people
        else structlog.processors.JSONRenderer(serializer=lambda event, **_: to_json(event)),
    ]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),  # the stderr of the moment, not of the setup
    )
    set_on_retry_hooks([_say_retry])
    if not any(isinstance(handler, _OfLibraries) for handler in logging.root.handlers):
        logging.root.addHandler(_OfLibraries(logging.WARNING))


class _OfLibraries(logging.Handler):
    """What libraries say by Python's `logging`, the web server's tracebacks too, as events like our own."""

    def emit(self, record: logging.LogRecord) -> None:
        say = structlog.get_logger().error if record.levelno >= logging.ERROR else structlog.get_logger().warning
        say(record.getMessage(), library=record.name, exc_info=record.exc_info)


def _visible_texts(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Every text as one visible line; a traceback keeps its lines."""
    lines = {"exception": visible(str(event["exception"]))} if "exception" in event else {}
    return {**sanitized(event), **lines}


@contextmanager
def retries_as_notes(note: Callable[[str], object]) -> Iterator[None]:
    """Tell `note` of retries in a sentence while the block runs, in place of a log line: a person reads along."""

    def tell(details: RetryDetails) -> None:
        if details.retry_num in SAID_RETRIES:
            again = f"tried {details.retry_num} times, again in {details.wait_for:.1f} s"
            note(f"no answer yet, {again}: {details.caused_by}")

    before = get_on_retry_hooks()
    set_on_retry_hooks([tell])
    try:
        yield
    finally:
        set_on_retry_hooks(before)


def _say_retry(details: RetryDetails) -> None:
    """Log what is tried again, why, and when; of an outage a few lines, not one for each try."""
    if details.retry_num not in SAID_RETRIES:
        return
    wait = round(details.wait_for, 1)
    structlog.get_logger().warning("retry", cause=str(details.caused_by), number=details.retry_num, wait_seconds=wait)
