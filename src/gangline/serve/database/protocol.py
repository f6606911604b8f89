"""Protocols of the state database: deliveries, orders, the index of runs, tokens.

Records stay the truth: a lost index is built again from them. Implemented over SQLite and PostgreSQL, one suite for
both. Every call is one transaction, durable when it returns.
"""

from collections.abc import Sequence
from typing import Protocol

from gangline.serve.database.types import DatabaseProblem, Order, Principal, RunFilter, RunRow


class Deliveries(Protocol):
    """What was taken in, so that a repeat is known as one."""

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

        An order that yields is not queued where another of the same head waits: that one is somebody's, and finds
        what is there, too.

        Returns:
            False where its id or its body was seen in the last 30 days: nothing is queued then.
        """
        ...

    def forget(self, *, before: float) -> int:
        """Drop what is older; how many."""
        ...


class OrderQueue(Protocol):
    """The queue: what is to be built, by whom it is driven, what became of it."""

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
        """False where another has it now."""
        ...

    def settle(self, order: Order, *, holder: str) -> bool:
        """Write state, run, commit, tries, not_before and note of an order that `holder` still has."""
        ...

    def unpark(self, run: str, *, now: float) -> bool:
        """Let the parked order of a run start again now: its fork was approved, its hour has come."""
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
    """Who may call the service, by the digest of what they show."""

    def add(self, *, digest: str, principal: Principal, expires: float | None, now: float) -> None:
        """Only the SHA-256 of a token is kept."""
        ...

    def find(self, digest: str, *, now: float) -> Principal | None:
        """Whose token has this digest; None where it is unknown or expired."""
        ...

    def list(self) -> list[tuple[str, Principal, float | None]]:
        """(first 8 of the digest, principal, end)."""
        ...

    def revoke(self, beginning: str) -> int:
        """Delete tokens whose digest begins so; how many."""
        ...


class Database(Protocol):
    """All of it, opened; the caller closes it."""

    deliveries: Deliveries
    orders: OrderQueue
    runs: RunIndex
    tokens: Tokens

    def check(self) -> DatabaseProblem | None:
        """What is wrong with it (full, away, damaged, of another version); None: a delivery would be kept.

        A commit of its own proves it, and in SQLite a file beside it.
        """
        ...

    def close(self) -> None: ...
