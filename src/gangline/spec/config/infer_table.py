"""Tables of inference as frozen data: `[infer]` of a line, its gate, and `[infer]` and `[kserve]` of a site."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from gangline.spec.bounds import Bound


@dataclass(frozen=True, kw_only=True, slots=True)
class InferTable:
    """How a published model answers."""

    handler: str | None = None
    """`module:Class` of the repository with `load(folder)`, `predict(batch)`, `inputs` and `outputs`; none: the task's
    model."""
    batch: Annotated[int, Bound(least=1)] = 1
    """Most samples of one forward pass."""
    wait_ms: Annotated[float, Bound(least=0)] = 2.0
    """Longest time that a request waits for others of its batch."""
    queue: Annotated[int, Bound(least=1)] = 64
    """Requests that may wait; further ones are refused with 429."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ServeGate:
    """Limits of a candidate that is started as it would be served, `gate.serve`."""

    p99_ms: Annotated[float | None, Bound(above=0, words="a number above 0", works="leave it out for none")] = None
    """Longest answer of 99 in 100 requests."""
    memory_bytes: Annotated[float | None, Bound(above=0, words="a number above 0", works="leave it out for none")] = (
        None
    )
    """Most memory of the server."""
    worse_percent: Annotated[float | None, Bound(above=0, words="a number above 0", works="leave it out for none")] = (
        None
    )
    """How much slower or fatter than the base it may be, both measured in turns on one machine."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SiteInferTable:
    """Where `gangline infer` listens, and what it runs with."""

    host: str = "127.0.0.1"
    """Address; beyond loopback it demands a token."""
    port: Annotated[int, Bound(least=1, most=65_535, words="a port of 1 to 65535", works="8080 is the default")] = 8080
    """Port of the REST API."""
    max_request_bytes: Annotated[float, Bound(least=1)] = 16e6
    """Larger requests are refused before they are read."""
    python: str | None = None
    """Interpreter of an environment that has `gangline[infer]`; none: the one that `make infer` makes."""
    token: str | None = None
    """Reference to the bearer token of callers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KserveTable:
    """What `gangline emit kserve` writes into an InferenceService."""

    namespace: str | None = None
    """Namespace of servers, another than that of gangs."""
    mode: Literal["Standard", "Knative"] = "Standard"
    """Deployment mode of KServe."""
    image: str | None = None
    """Image of the server, with `@sha256:`; for a language model the image that verifies it."""
    secret: str = "gangline-infer"  # noqa: S105  # its name
    """Kubernetes secret with a credential that only reads the store; its key is `store-credentials`;
    with `infer.token` also one with the token of callers, `infer-token`."""
    resources: dict[str, str] = field(default_factory=dict)
    """Requests and limits of the server by resource; empty: one rank of `[pod]`."""
    min_replicas: int = 1
    """Fewest servers."""
    max_replicas: int = 1
    """Most servers."""
