"""Permissions: one table of routes with the role that each needs. A route that is not in the table is refused."""

import re
from dataclasses import dataclass
from typing import Literal

from starlette.routing import compile_path

from gangline.serve.database.types import Principal, Role

Scope = Literal["open", "signed", "own", "named", "run", "order", "all"]
"""Whose right is asked for.

open: no principal is needed. signed: the body's signature is checked where it is read. own: of some project, the
answer shows those alone. named: of the project that the body names, asked where it is read. run, order: of the project
that the path's run or order belongs to. all: of `*`.
"""


@dataclass(frozen=True, slots=True)
class RouteRule:
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
    RouteRule("GET", "/healthz", "reader", "open"),
    RouteRule("GET", "/readyz", "reader", "open"),
    RouteRule("GET", "/openapi.json", "reader", "open"),
    RouteRule("GET", "/metrics", "reader", "all"),
    RouteRule("POST", "/hooks/{forge}", "runner", "signed"),
    RouteRule("GET", "/api/v1/runs", "reader", "own"),
    RouteRule("POST", "/api/v1/runs", "runner", "named"),
    RouteRule("GET", "/api/v1/runs/{run}", "reader", "run"),
    RouteRule("GET", "/api/v1/runs/{run}/metrics", "reader", "run"),
    RouteRule("GET", "/api/v1/runs/{run}/logs", "reader", "run"),
    RouteRule("GET", "/api/v1/runs/{run}/events", "reader", "run"),
    RouteRule("GET", "/api/v1/runs/{run}/artifacts/{kind}", "reader", "run"),
    RouteRule("POST", "/api/v1/runs/{run}/cancel", "runner", "run"),
    RouteRule("POST", "/api/v1/runs/{run}/approve", "maintainer", "run"),
    RouteRule("GET", "/api/v1/orders", "reader", "own"),
    RouteRule("GET", "/api/v1/orders/{order}", "reader", "order"),
    RouteRule("POST", "/api/v1/orders/{order}/cancel", "runner", "order"),
    RouteRule("GET", "/api/v1/tokens", "admin", "all"),
    RouteRule("POST", "/api/v1/tokens", "admin", "all"),
    RouteRule("DELETE", "/api/v1/tokens/{beginning}", "admin", "all"),
    RouteRule("GET", "/login", "reader", "open"),
    RouteRule("POST", "/login", "reader", "open"),
    RouteRule("POST", "/logout", "reader", "open"),
    RouteRule("GET", "/static/{name}", "reader", "open"),
    RouteRule("GET", "/", "reader", "open"),
    RouteRule("GET", "/runs", "reader", "own"),
    RouteRule("GET", "/compare", "reader", "own"),
    RouteRule("GET", "/searches/{search}", "reader", "own"),
    RouteRule("GET", "/runs/{run}", "reader", "run"),
    RouteRule("GET", "/runs/{run}/report", "reader", "run"),
    RouteRule("POST", "/runs/{run}/cancel", "runner", "run"),
    RouteRule("POST", "/runs/{run}/approve", "maintainer", "run"),
)

_COMPILED: tuple[tuple[re.Pattern[str], RouteRule], ...] = tuple((compile_path(rule.path)[0], rule) for rule in RULES)


@dataclass(frozen=True, slots=True)
class MatchedRule:
    """A rule that a request came under."""

    rule: RouteRule
    run: str | None = None
    order: str | None = None


def find_rule(method: str, path: str) -> MatchedRule | tuple[str, ...]:
    """The rule for a request; else the methods that this path has, none where there is no such path."""
    matches = [(match, rule) for pattern, rule in _COMPILED if (match := pattern.fullmatch(path))]
    for match, rule in matches:
        if rule.method == method:
            parts = match.groupdict()
            return MatchedRule(rule, run=parts.get("run"), order=parts.get("order"))
    return tuple(sorted(rule.method for _, rule in matches))


def readable_projects(principal: Principal) -> tuple[str, ...] | None:
    """Projects that a principal may read; None: all."""
    return None if "*" in principal.roles else tuple(sorted(principal.roles))
