"""The end of a gang is written down once, by the first driver that sees it; every later one reads the same."""

import time
from collections.abc import Iterable
from datetime import UTC, datetime

from gangline.errors import StillRunning
from gangline.launch.kubernetes.api.protocol import Api
from gangline.launch.kubernetes.ending import PodEnd, add_up, gang_end, pod_end
from gangline.launch.kubernetes.gang_secret import revoke_secret
from gangline.launch.kubernetes.kept import Kept, close_end, keep_end, read_kept
from gangline.launch.kubernetes.pods import pods_of
from gangline.launch.kubernetes.roots import Root

POLL_SECONDS = 0.2
CLOSING_SECONDS = 5.0
"""What whoever deleted a root has to write down how its gang ended, before somebody else does."""


def close_ended(api: Api, root: Root, *, seen: Iterable[PodEnd] = ()) -> Kept | None:
    """Of a gang whose root says that it has ended; its credentials are of no use any more.

    Args:
        api: Of the gang.
        root: As read just now.
        seen: Ends of pods that are gone by now.
    """
    podset = root.podset()
    ends = {each.uid: each for each in seen}
    ends |= {each.uid: each for pod in pods_of(api, podset.name) if (each := pod_end(pod)) is not None}
    end = gang_end(_whose_failure_tells(api, root), ends.values())
    keep_end(api, Kept(uid=root.uid, podset=podset, end=end, is_closed=True), now=datetime.now(UTC))
    if podset.secrets:
        revoke_secret(api, root)
    return close_end(api, podset.name, lambda _: end)


def _whose_failure_tells(api: Api, root: Root) -> Root:
    """The Job below it, where that failed: of why, JobSet and Trainer say only that a Job did."""
    if root.ended_well or len(root.lineage) == 1:
        return root
    path = root.lineage[-1]
    found = api.get(path)
    job = Root(path, found) if found is not None else root
    return job if job.condition("Failed") else root


def close_gone(api: Api, root: Root, *, seen: Iterable[PodEnd]) -> Kept | None:
    """Of a gang whose root was there a moment ago, and is not."""
    podset = root.podset()
    patience = time.monotonic() + CLOSING_SECONDS
    while time.monotonic() < patience:
        kept = read_kept(api, podset.name)
        if kept is not None and kept.is_closed:
            return kept
        time.sleep(POLL_SECONDS)
    ends = list(seen)
    lost = Kept(uid=root.uid, podset=podset, end=gang_end(root, ends), is_closed=False)
    keep_end(api, lost, now=datetime.now(UTC))
    return close_end(api, podset.name, lambda told: add_up(told, ends))


def existing_end(api: Api, name: str) -> Kept | None:
    """Of a gang whose root is gone; closed now, if whoever deleted it died before that. None: there was none.

    Raises:
        StillRunning: Its pods are still on their way out.
    """
    kept = read_kept(api, name)
    if kept is None or kept.is_closed:
        return kept
    if pods_of(api, name):
        raise StillRunning(f"gang {name} is stopping; follow it, or cancel it again")
    return close_end(api, name, lambda told: told)
