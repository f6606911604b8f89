"""Options that name the origin of a commit, for drivers that know it: Jenkins, the service, a hook."""

from typing import Annotated

import typer

from gangline.line.request.run_request import CommitOrigin
from gangline.spec.record import Trust

BranchOption = Annotated[
    str | None, typer.Option("--branch", help="Branch that was pushed to, where the checkout cannot tell.")
]
PullRequestOption = Annotated[
    int | None, typer.Option("--pull-request", min=1, help="Pull request that the commit belongs to.")
]
TrustOption = Annotated[
    Trust,
    typer.Option(
        "--trust", help="Trust in the commit: a fork's code runs only after gangline approve, and gets no secret."
    ),
]


def origin_of(branch: str | None, pull_request: int | None, trust: Trust) -> CommitOrigin | None:
    """Where the commit comes from; None where nothing was said."""
    origin = CommitOrigin(branch=branch, pull_request=pull_request, trust=trust)
    return None if origin == CommitOrigin() else origin
