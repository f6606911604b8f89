"""`[federation]` of a site and `member.toml` of a member as frozen data."""

from dataclasses import dataclass
from typing import Annotated, Literal

from gangline.spec.bounds import Bound

KITS = "gangline-kit"
"""Name of the Secret with kits, or its beginning before a hyphen; admission gives pods no other one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FederationTable:
    """Federation that this site coordinates; without `kit` members are simulated."""

    kit: str | None = None
    """NVFlare server kit of the coordinator: a folder, or for gangs on a cluster an archive, `secret:k8s:NAME/KEY`."""
    admin: str | None = None
    """Reference to the admin kit, `secret:file:/FOLDER` or on a cluster `secret:k8s:NAME/KEY`; wanted with kit."""
    members: tuple[str, ...] = ()
    """Names of the certificates that may take part; others are ignored and counted."""
    image: str | None = None
    """Image of the coordinator on a cluster, by digest; wanted there."""
    service: str = "federation"
    """Service on a cluster that members dial; with the namespace it is the host that their kits name."""
    port: int = 8002
    """Port of the server kit, on a cluster."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MemberTable:
    """`member.toml`, whole: what a member allows; only its administrator may write the file."""

    data: str
    """Folder that model code reads, and nothing else of this machine."""
    approve: Literal["each", "signed"] = "each"
    """Whether every offer waits for `gangline federate approve`, or those run that one of `signers` signed."""
    signers: tuple[str, ...] = ()
    """Ids of keys of `gangline keys` whose offers run without a word here, with any roster and any settings."""
    epsilon: Annotated[float, Bound(least=0, works="0 refuses every run that asks for privacy")] = 0.0
    """Privacy budget of all runs together, by plain addition."""
    private: bool = False
    """Runs that ask for no epsilon are refused."""
    least_sum: Annotated[int, Bound(least=3, works="a sum of two tells each of them the other one")] = 3
    """Smallest group whose secure sum this member joins."""
