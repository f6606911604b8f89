"""What the proxy before an API server does to which request: pure data, and the count of what it did."""

import random
import re
import threading
from dataclasses import dataclass, field
from typing import Literal

Action = Literal[
    "hold",
    "answer",
    "drip",
    "lose_answer",
    "old_version",
    "cut_watch",
    "stall_watch",
    "thin_watch",
    "bookmarks_only",
    "reorder_watch",
]
_OF_WATCHES = ("old_version", "cut_watch", "stall_watch", "thin_watch", "bookmarks_only", "reorder_watch")


@dataclass(frozen=True, kw_only=True)
class HttpRule:
    """One fault and the requests it strikes, among those whose method and path (with query) fit."""

    action: Action
    """`hold` for `seconds`, then forward; `answer` with `status` instead of forwarding; `drip`: the same, with a body
    that comes byte by byte for `seconds`; `lose_answer`: forward, then close without an answer; `old_version`: forward
    with resourceVersion=1, so that the 410 is the server's own; of a watch, after `after` events: `cut_watch`,
    `stall_watch` for `seconds`, `thin_watch` drops every second event, `bookmarks_only` drops all others,
    `reorder_watch` sends each event after the next one."""
    method: str = ""
    path: str = ""
    """Regular expression, searched in path and query."""
    skip: int = 0
    """First so many fitting requests pass."""
    times: int | None = None
    """Strikes so often; None: always."""
    probability: float = 1.0
    seconds: float = 0.0
    status: int = 503
    retry_after_seconds: int | None = None
    after: int = 0


@dataclass
class RuleBook:
    """Rules in force; the first that strikes a request is the only one. Thread-safe; draws are seeded."""

    rules: list[HttpRule] = field(default_factory=list)
    seed: int = 0
    strikes: list[tuple[HttpRule, str, str]] = field(default_factory=list)
    """What was struck: rule, method, path."""

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self.set(*self.rules)

    def set(self, *rules: HttpRule) -> None:
        with self._lock:
            self.rules = list(rules)
            self._fitting = dict.fromkeys(range(len(rules)), 0)
            self._faulty = dict.fromkeys(range(len(rules)), 0)
            self._random = random.Random(self.seed)

    def strike(self, method: str, path: str) -> HttpRule | None:
        with self._lock:
            for number, rule in enumerate(self.rules):
                if self._hits(number, rule, method, path):
                    self._faulty[number] += 1
                    self.strikes.append((rule, method, path))
                    return rule
        return None

    def _hits(self, number: int, rule: HttpRule, method: str, path: str) -> bool:
        if (rule.method and rule.method != method) or not re.search(rule.path, path):
            return False
        if rule.action in _OF_WATCHES and "watch=true" not in path:
            return False
        self._fitting[number] += 1
        if self._fitting[number] <= rule.skip or (rule.times is not None and self._faulty[number] >= rule.times):
            return False
        return self._random.random() < rule.probability
