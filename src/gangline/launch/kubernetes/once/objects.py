"""The Job of a pod that runs once: a gang's, but for its two containers. The first fetches, the second runs model code.

Only the first one mounts the Secret, which has a URL of one object. The second has no credential, and nothing that
could get it one; its network is that of a gang, where the store answers nobody without a credential.
"""

from dataclasses import replace
from datetime import timedelta

from gangline.launch.kubernetes.api.protocol import Object
from gangline.launch.kubernetes.objects.pod_environment import HOME, SECRETS_FOLDER, USER
from gangline.launch.kubernetes.objects.render import Rendered, render_as
from gangline.launch.kubernetes.objects.setting import END, ROLE, Setting, rfc3339

BUNDLE = "bundle"
"""Name of the secret, and of its file."""
COMMAND = ("python", "-m", "gangline.train.once")
KEPT_SECONDS = 60
"""How long a Job that ended stays where its driver died."""
_ENVIRONMENT = {
    "GANGLINE_HOME": HOME, "HOME": HOME, "LOGNAME": USER, "PYTHONSAFEPATH": "1", "PYTHONUNBUFFERED": "1"
}  # fmt: skip


def render_once(setting: Setting) -> Rendered:
    """Of a PodSet of one node, whose `deadline_seconds` are those of the module."""
    rendered = render_as("job", setting)
    root = rendered.root
    spec = root["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    run = _run(container)
    pod["initContainers"], pod["containers"] = [_fetch(container)], [run]
    spec["ttlSecondsAfterFinished"] = KEPT_SECONDS
    del spec["podFailurePolicy"]  # a pod that is taken is not made again: its driver asks again
    end = setting.now + timedelta(seconds=spec["activeDeadlineSeconds"])  # waiting for a server is in it
    for each in (root, spec["template"]):
        each["metadata"]["labels"] |= {ROLE: "once"}
        each["metadata"]["annotations"] |= {END: rfc3339(end)}
    policies = tuple(each for each in rendered.around if each[1]["kind"] == "NetworkPolicy")
    return replace(rendered, root=root, around=policies)


def _run(container: Object) -> Object:
    mounts = [each for each in container["volumeMounts"] if each["name"] != "secrets"]
    kept = {name: value for name, value in container.items() if name not in ("ports", "readinessProbe")}
    return kept | {"env": _env(_ENVIRONMENT), "volumeMounts": mounts}


def _fetch(container: Object) -> Object:
    env = _env(_ENVIRONMENT | {"GANGLINE_BUNDLE_FILE": f"{SECRETS_FOLDER}/{BUNDLE}"})
    mine = _run(container) | {"name": "fetch", "command": [*COMMAND, "fetch"], "env": env}
    return mine | {"volumeMounts": container["volumeMounts"]}


def _env(values: dict[str, str]) -> list[Object]:
    return [{"name": name, "value": values[name]} for name in sorted(values)]
