"""Names of GPUs: whether a plan and a driver mean the same kind.

A plan has the name that the driver gave, that a node's label `nvidia.com/gpu.product` has (dashes for spaces), or that
the site's file calls its GPUs by.
"""

import re
from collections.abc import Iterable

_KINDS_OF_WORDS = (
    re.compile(r"(?:rtx|gtx)?((?:gb|gh|mi|[abhlktvp])\d{1,4}[a-z]?|\d{4})"),
    re.compile(r"(?!480gb)(\d{1,3}gb)"),  # 480 are those of a GH200's processor
    re.compile(r"(pcie|sxm|nvl)\d?"),
)
"""Model, memory, form: words by which names differ. `gold` says none of them."""


def other_kinds(planned: str, found: Iterable[str]) -> tuple[str, ...]:
    """Those of `found`, as drivers call them, that are certainly no GPU that `planned` means.

    They are another model, or the same one with another memory or form, as far as both names say it.
    """
    return tuple(each for each in found if any(_differ(kind, planned, each) for kind in _KINDS_OF_WORDS))


def _differ(kind: re.Pattern[str], one: str, other: str) -> bool:
    first, second = _words(kind, one), _words(kind, other)
    return bool(first and second) and not first & second


def _words(kind: re.Pattern[str], name: str) -> set[str]:
    matches = (kind.fullmatch(word) for word in re.split(r"[\s_-]+", name.lower()))
    return {match[1] for match in matches if match}
