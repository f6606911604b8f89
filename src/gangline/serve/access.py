"""Who may call what: one table of routes. What is not in it is refused, whatever else the application serves."""

import re
from dataclasses import dataclass
from typing import Literal

from starlette.routing import compile_path

from gangline.serve.types import Principal, Role

Scope = Literal["open", "signed", "own", "named", "run", "order", "all"]
"""Whose right is asked for.

open: nobody's, whoever calls. signed: of whoever signed the body, asked where it is read. own: of some project, the
answer shows those alone. named: of the project that the body names, asked where it is read. run, order: of the project
that the path's run or order belongs to. all: of `*`.
"""


@dataclass(frozen=True, slots=True)
class Rule:
    """Who may call one route: at least `role` of what `scope` says."""

    method: str
    path: str
    role: Role
    scope: Scope

    @property
    def is_page(self) -> bool:
        """Meant for a browser: refusals are pages, sessions may write with the page's own token."""
        return not self.path.startswith(("/api/", "/hooks/", "/metrics", "/healthz", "/readyz", "/openapi"))


RULES = (
    Rule("GET", "/healthz", "reader", "open"),
    Rule("GET", "/readyz", "reader", "open"),
    Rule("GET", "/openapi.json", "reader", "open"),
    Rule("GET", "/metrics", "reader", "all"),
    Rule("POST", "/hooks/{forge}", "runner", "signed"),
    Rule("GET", "/api/v1/runs", "reader", "own"),
    Rule("POST", "/api/v1/runs", "runner", "named"),
    Rule("GET", "/api/v1/runs/{run}", "reader", "run"),
    Rule("GET", "/api/v1/runs/{run}/metrics", "reader", "run"),
    Rule("GET", "/api/v1/runs/{run}/logs", "reader", "run"),
    Rule("GET", "/api/v1/runs/{run}/events", "reader", "run"),
    Rule("GET", "/api/v1/runs/{run}/artifacts/{kind}", "reader", "run"),
    Rule("POST", "/api/v1/runs/{run}/cancel", "runner", "run"),
    Rule("POST", "/api/v1/runs/{run}/approve", "maintainer", "run"),
    Rule("GET", "/api/v1/orders", "reader", "own"),
    Rule("GET", "/api/v1/orders/{order}", "reader", "order"),
    Rule("POST", "/api/v1/orders/{order}/cancel", "runner", "order"),
    Rule("GET", "/api/v1/tokens", "admin", "all"),
    Rule("POST", "/api/v1/tokens", "admin", "all"),
    Rule("DELETE", "/api/v1/tokens/{beginning}", "admin", "all"),
    Rule("GET", "/login", "reader", "open"),
    Rule("POST", "/login", "reader", "open"),
    Rule("POST", "/logout", "reader", "open"),
    Rule("GET", "/static/{name}", "reader", "open"),
    Rule("GET", "/", "reader", "open"),
    Rule("GET", "/runs", "reader", "own"),
    Rule("GET", "/compare", "reader", "own"),
    Rule("GET", "/runs/{run}", "reader", "run"),
    Rule("GET", "/runs/{run}/report", "reader", "run"),
    Rule("POST", "/runs/{run}/cancel", "runner", "run"),
    Rule("POST", "/runs/{run}/approve", "maintainer", "run"),
)

_COMPILED: tuple[tuple[re.Pattern[str], Rule], ...] = tuple((compile_path(rule.path)[0], rule) for rule in RULES)


@dataclass(frozen=True, slots=True)
class Asked:
    """A rule that a request came under."""

    rule: Rule
    run: str | None = None
    order: str | None = None


def find_rule(method: str, path: str) -> Asked | tuple[str, ...]:
    """The rule for a request; else the methods that this path has, none where there is no such path."""
    matches = [(match, rule) for pattern, rule in _COMPILED if (match := pattern.fullmatch(path))]
    for match, rule in matches:
        if rule.method == method:
            parts = match.groupdict()
            return Asked(rule, run=parts.get("run"), order=parts.get("order"))
    return tuple(sorted(rule.method for _, rule in matches))


def readable(principal: Principal) -> tuple[str, ...] | None:
    """Projects that a principal may read; None: all."""
    return None if "*" in principal.roles else tuple(sorted(principal.roles))
