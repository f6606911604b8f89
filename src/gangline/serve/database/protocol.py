"""Protocols of the state database: deliveries, orders, the index of runs, tokens.

Records stay the truth: a lost index is built again from them. Implemented over SQLite and PostgreSQL, one suite for
both. Every call is one transaction, durable when it returns.
"""

from collections.abc import Sequence
from typing import Protocol

from gangline.serve.database.types import DatabaseProblem, Order, Principal, RunFilter, RunRow


class Deliveries(Protocol):
    """Accepted deliveries, by which a repeat is recognized."""

    def take_in(
        self,
        *,
        forge: str,
        delivery: str,
        body_digest: str,
        order: Order | None,
        now: float,
        unless_queued: bool = False,
    ) -> bool:
        """Remember a verified delivery and, in the same transaction, queue its order.

        An order that yields is not queued if another of the same head waits: that one was requested, and builds
        what is there, too.

        Returns:
            False where its id or its body was seen in the last 30 days: nothing is queued then.
        """
        ...

    def forget(self, *, before: float) -> int:
        """Delete older deliveries; returns their number."""
        ...


class OrderQueue(Protocol):
    """The queue of orders: their commits, drivers and results."""

    def add(self, order: Order, *, now: float) -> Order: ...

    def claim(self, *, holder: str, now: float, lease_seconds: float, max_driving: int | None = None) -> Order | None:
        """The next order that may start, in fair turn over projects, now `driving`; None: nothing to do.

        Nothing is to be done either while `most` orders are driven, by any service.
        """
        ...

    def claim_newer(self, *, holder: str, now: float, lease_seconds: float) -> Order | None:
        """As `claim`, of orders that ask for the head of a ref whose older order is driven: its run may be in vain."""
        ...

    def renew(self, order: int, *, holder: str, now: float, lease_seconds: float) -> bool:
        """False if another service holds it now."""
        ...

    def settle(self, order: Order, *, holder: str) -> bool:
        """Write state, run, commit, tries, not_before and note of an order that `holder` still has."""
        ...

    def unpark(self, run: str, *, now: float) -> bool:
        """Let the parked order of a run start again now, because its fork was approved or its time has come."""
        ...

    def drop(self, *, project: str, ref: str, note: str, except_order: int = 0) -> list[Order]:
        """Orders of a ref that have no run which is driven become `dropped`, except order `but`."""
        ...

    def withdraw(self, order: int, *, note: str) -> Order | None:
        """The order as it is then: `dropped`, unless it is over or a run of it is driven; None where it is gone."""
        ...

    def get(self, order: int) -> Order | None: ...

    def find_by_requester(self, *, project: str, by: str) -> Order | None:
        """The newest order of `project` that says it was `asked_by` this one."""
        ...

    def refused(self, *, projects: Sequence[str] | None, limit: int) -> list[Order]:
        """Of refs whose newest order is over without a run, as the line of their commit does not hold; newest first."""
        ...

    def list(self, *, states: Sequence[str], projects: Sequence[str] | None, limit: int) -> list[Order]:
        """Oldest first."""
        ...

    def counts(self) -> dict[str, int]:
        """Orders by state."""
        ...

    def forget(self, *, before: float, limit: int) -> int:
        """Delete the oldest orders that are done or dropped and waited last `before`; how many, 0 when none is left.

        At most `limit` of each state in one call, which is one transaction. One that is quarantined stays: somebody is
        to look at it.
        """
        ...


class RunIndex(Protocol):
    """A row a run, as its record last said, for lists and look-ups."""

    def put(self, rows: Sequence[RunRow]) -> None:
        """Insert or renew; an older `seq` changes nothing."""
        ...

    def search(self, wanted: RunFilter) -> list[RunRow]:
        """Newest first."""
        ...

    def get(self, run: str) -> RunRow | None: ...

    def counts(self, projects: Sequence[str] | None) -> dict[tuple[str, str], int]:
        """Runs by (project, verdict)."""
        ...


class Tokens(Protocol):
    """Tokens of the service, by their digests."""

    def add(self, *, digest: str, principal: Principal, expires: float | None, now: float) -> None:
        """Only the SHA-256 of a token is kept."""
        ...

    def find(self, digest: str, *, now: float) -> Principal | None:
        """Principal of the token with this digest; None if it is unknown or expired."""
        ...

    def list(self) -> list[tuple[str, Principal, float | None]]:
        """(first 8 of the digest, principal, end)."""
        ...

    def revoke(self, beginning: str) -> int:
        """Delete tokens whose digest begins so; how many."""
        ...


class Database(Protocol):
    """An open state database; the caller closes it."""

    deliveries: Deliveries
    orders: OrderQueue
    runs: RunIndex
    tokens: Tokens

    def check(self) -> DatabaseProblem | None:
        """What is wrong with it (full, away, damaged, of another version); None: a delivery would be kept.

        A test commit shows it, and for SQLite a file next to the database.
        """
        ...

    def close(self) -> None: ...
