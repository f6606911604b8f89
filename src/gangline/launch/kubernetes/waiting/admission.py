"""Waiting reasons from events of controllers that cannot create pods: quotas, policies, webhooks."""

import re

from gangline.errors import ConfigError
from gangline.launch.kubernetes.placement.resources import as_text, read_amounts
from gangline.launch.kubernetes.waiting.snapshot import (
    Snapshot,
    WaitingReason,
    event_time,
    one_line,
    read_time,
    with_holders,
)

_QUOTA = re.compile(
    r"exceeded quota: (?P<name>\S+), requested: (?P<requested>.*?), used: (?P<used>.*?), limited: (?P<limited>.*)"
)
_AMOUNT = re.compile(r"([^\s,=]+)=([^\s,]+)")
_NEED_QUOTA = re.compile(r"failed quota: (\S+?): must specify (.*)")
_POD_SECURITY = re.compile(r'violates PodSecurity "([^"]+)": (.*)')
_POLICY = re.compile(r"ValidatingAdmissionPolicy '([^']+)' with binding '[^']+' denied request: (.*)")
_WEBHOOK = re.compile(r'admission webhook "([^"]+)" denied the request: ?(.*)')
_DEAD_WEBHOOK = re.compile(r'failed calling webhook "([^"]+)": (.*)', re.DOTALL)
_FORBIDDEN = re.compile(r"is forbidden: (.*)", re.DOTALL)
_MISSING = ("not found", "was found")
_MISSING_SECONDS = 30.0


def refused(seen: Snapshot) -> WaitingReason | None:
    """Pods that will never be created."""
    text = _why_not_created(seen)
    if text is None:
        return None
    if quota := _QUOTA.search(text):
        return _never_fits(seen, text, quota)
    for pattern, words in (
        (_POD_SECURITY, "refused: PodSecurity {0}: {1}"),
        (_POLICY, "refused: policy {0}: {1}"),
        (_WEBHOOK, "refused: webhook {0}: {1}"),
        (_NEED_QUOTA, "refused: quota {0} requires every container to specify {1}"),
    ):
        if match := pattern.search(text):
            sentence = words.format(*(one_line(group) for group in match.groups()))
            return WaitingReason(kind="refused", sentence=sentence, raw=text, final_after_seconds=0.0)
    if match := _FORBIDDEN.search(text):
        missing = text.rstrip().endswith(_MISSING)
        return WaitingReason(
            kind="refused",
            sentence=f"refused: {one_line(match[1])}",
            raw=text,
            final_after_seconds=_MISSING_SECONDS if missing else 0.0,
        )
    return None


def quota_used(seen: Snapshot) -> WaitingReason | None:
    """Pods that are created once quota is free or a webhook answers."""
    text = _why_not_created(seen)
    if text is None:
        return None
    if quota := _QUOTA.search(text):
        return _used_up(seen, text, quota)
    if dead := _DEAD_WEBHOOK.search(text):
        sentence = f"webhook {dead[1]} does not answer: {one_line(dead[2])}"
        return WaitingReason(kind="webhook", sentence=sentence, raw=text)
    return WaitingReason(kind="not-created", sentence=f"its pods cannot be created: {one_line(text)}", raw=text)


def no_jobset(seen: Snapshot) -> WaitingReason | None:
    """A JobSet that Trainer cannot create, which only an event shows."""
    recent_events = seen.recent_events("TrainJobResourcesCreationFailed")
    if not recent_events or seen.pods:
        return None
    text = str(recent_events[-1].get("message", ""))
    sentence = f"Trainer cannot create the JobSet: {one_line(text)}"
    return WaitingReason(kind="trainer", sentence=sentence, raw=text, final_after_seconds=60.0)


def _why_not_created(seen: Snapshot) -> str | None:
    """Message of the last failure, while pods are missing and none was created after it."""
    if len(seen.pods) >= seen.num_nodes or ((seen.root or {}).get("spec") or {}).get("suspend"):
        return None
    failures = seen.recent_events("FailedCreate", "JobCreationFailed")
    if not failures:
        return None
    made = [read_time(pod["metadata"].get("creationTimestamp")) for pod in seen.pods]
    if any(time and time > event_time(failures[-1], seen.now) for time in made):
        return None
    return str(failures[-1].get("message", "")).removeprefix("Error creating: ")


def _never_fits(seen: Snapshot, text: str, quota: "re.Match[str]") -> WaitingReason | None:
    """A pod or a gang that exceeds the whole quota; of such a gang some pods would wait for ever."""
    asked, hard = _amounts(quota["requested"]), _amounts(quota["limited"])
    for pods, words in ((1, "a pod requests"), (seen.num_nodes, f"{seen.num_nodes} pods request")):
        for name, amount in asked.items():
            if pods * amount > hard.get(name, pods * amount):
                sentence = (
                    f"quota {quota['name']} can never satisfy it: {words} {_text(name, pods * amount)},"
                    f" the limit is {_text(name, hard[name])}"
                )
                return WaitingReason(kind="quota-never", sentence=sentence, raw=text, final_after_seconds=0.0)
    return None


def _used_up(seen: Snapshot, text: str, quota: "re.Match[str]") -> WaitingReason:
    asked, used, hard = (_amounts(quota[part]) for part in ("requested", "used", "limited"))
    if not asked:
        return WaitingReason(kind="quota", sentence=f"quota {quota['name']}: {one_line(text)}", raw=text)
    short = [name for name in asked if used.get(name, 0) + asked[name] > hard.get(name, 0)] or list(asked)
    parts = [f"{_text(name, used.get(name, 0), unit=False)} of {_text(name, hard.get(name, 0))}" for name in short]
    sentence = f"quota {quota['name']}: {' and '.join(parts)} are used"
    return with_holders(WaitingReason(kind="quota", sentence=sentence, raw=text), seen, short[:1])


def _amounts(text: str) -> dict[str, int]:
    """Amounts by resource; `requests.cpu` counts as `cpu`."""
    try:
        return read_amounts({_resource(name): amount for name, amount in _AMOUNT.findall(text)})
    except ConfigError:
        return {}  # words that only look like amounts: they are shown as they are


def _resource(name: str) -> str:
    return name.removeprefix("requests.").removeprefix("limits.")


def _text(resource: str, amount: int, *, unit: bool = True) -> str:
    text = as_text(resource, amount)
    return text if unit else text.removesuffix(f" {resource}")
