"""Logs of the command line: events on stderr, for people on a terminal, as JSON elsewhere."""

import logging
import sys
from collections.abc import Mapping

import structlog
from stamina.instrumentation import RetryDetails, set_on_retry_hooks

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
SAID_RETRIES = frozenset(4 * 2**power for power in range(16))
"""The fourth, eighth, sixteenth: what passes within a second is nobody's trouble."""


def set_up_logs(environ: Mapping[str, str]) -> None:
    """Warnings and worse; GANGLINE_LOG=debug|info|warning|error says otherwise."""
    level = LEVELS.get(environ.get("GANGLINE_LOG", "warning"), logging.WARNING)
    people = sys.stderr.isatty()
    processors: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="%H:%M:%S" if people else "iso", utc=not people),
        structlog.dev.ConsoleRenderer(colors=people and not environ.get("NO_COLOR"))
        if people
        else structlog.processors.JSONRenderer(ensure_ascii=False),
    ]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),  # the stderr of the moment, not of the setup
    )
    set_on_retry_hooks([_say_retry])


def _say_retry(details: RetryDetails) -> None:
    """What is tried again, why, and when; of an outage a few lines, not one for each try."""
    if details.retry_num not in SAID_RETRIES:
        return
    wait = round(details.wait_for, 1)
    structlog.get_logger().warning("retry", cause=str(details.caused_by), number=details.retry_num, wait_seconds=wait)
