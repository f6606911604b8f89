"""Objects of one list by uid, as far as lists and events told; versions decide, not the order of arrival. Pure."""

from collections import OrderedDict
from collections.abc import Iterable

from gangline.launch.kubernetes.api.protocol import Object, WatchEvent

_TOMBSTONES = 10_000


class Held:
    """Never goes back: an event that is older than what is known changes nothing."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self._floor = 0
        """Version of the last list: it knew all that is older."""
        self._gone: OrderedDict[str, int] = OrderedDict()
        """Version at which a uid was deleted, for what comes late."""

    def relist(self, found: Iterable[Object], version: str) -> None:
        self.objects = {uid_of(each): each for each in found}
        self._floor = _number(version)
        self._gone.clear()

    def is_news(self, event: WatchEvent) -> bool:
        """Whether `event` tells more than is known."""
        version = _number(version_of(event.object))
        uid = uid_of(event.object)
        known = self.objects.get(uid)
        at_least = max(self._floor, self._gone.get(uid, 0), _number(version_of(known)) if known else 0)
        return version == 0 or version > at_least

    def take(self, event: WatchEvent, kept: Object) -> None:
        """Note an event that is news; `kept` is what to hold of its object."""
        uid = uid_of(event.object)
        if event.kind != "deleted":
            self.objects[uid] = kept
            return
        self.objects.pop(uid, None)
        self._gone[uid] = _number(version_of(event.object))
        if len(self._gone) > _TOMBSTONES:
            self._gone.popitem(last=False)


def uid_of(body: Object) -> str:
    metadata = body["metadata"]
    return str(metadata.get("uid") or f"{metadata.get('namespace', '')}/{metadata.get('name', '')}")


def version_of(body: Object) -> str:
    return str(body["metadata"].get("resourceVersion", ""))


def _number(version: str) -> int:
    """Servers count versions in whole numbers; one that does not is taken at its word."""
    return int(version) if version.isdecimal() else 0
