"""InferenceService of KServe for one published version: an init container verifies it, then a server opens it.

There is no `storageUri`: KServe's own initializer checks no signature. The credential of the store is mounted into the
init container alone, and no container has a token of the API server.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gangline.errors import ConfigError
from gangline.launch.kubernetes.client.api import Object
from gangline.launch.kubernetes.objects.labels import COMMIT, MANAGED_BY, MODEL, VERSION
from gangline.launch.kubernetes.objects.pod_environment import (
    SECRETS_FOLDER,
    STORE_CREDENTIALS,
    USER,
    confinement,
    literal,
    unprivileged,
)
from gangline.spec.config.site import Site

GROUP_VERSION = "serving.kserve.io/v1beta1"
MODE = "serving.kserve.io/deploymentMode"
HUGGING_FACE = "kserve-huggingfaceserver"
"""ClusterServingRuntime of KServe for language models; it runs vLLM."""
PORT = 8080
MOUNT = "/model"
MODEL_FOLDER, CODE_FOLDER = f"{MOUNT}/version", f"{MOUNT}/code"
_SITE_FOLDER, _TMP = "/etc/gangline", "/tmp"  # noqa: S108 -- a volume of the pod's own
_TOKEN, _TOKEN_KEY = "GANGLINE_INFER_TOKEN", "infer-token"
_TMP_BYTES = 2 * 1024**3
_SPREAD_SECONDS, _DRAIN_SECONDS = 15, 30
"""How long a pod that ends still answers new requests, until gateways have left it out; and those it has then."""
_START_TRIES, _TRY_SECONDS = 120, 5
"""A server may take 10 minutes to open its model."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ServedVersion:
    """The version that an InferenceService answers with."""

    name: str
    """Name of the InferenceService."""
    model: str
    version: int
    commit: str
    hugging_face: str | None = None
    """Folder of the version that `save_pretrained` wrote; None: gangline's own server opens the version."""


def serving_objects(served: ServedVersion, *, site: Site, keys: Mapping[str, bytes]) -> tuple[Object, Object]:
    """ConfigMap with the site of the init container, and the InferenceService, in the order of creation.

    Args:
        served: Version to serve.
        site: Where it is served; its secrets stay where they are.
        keys: PEM of the public keys whose signature counts, by id.

    Raises:
        ConfigError: The site names no namespace, no image, or a store that pods do not reach.
    """
    kserve = site.kserve
    if kserve.namespace is None:
        raise ConfigError(
            "kserve.namespace: wanted a namespace for servers, found none in site.toml; it is another than that of"
            " gangs, whose admission policy lets in ranks alone"
        )
    if kserve.image is None:
        raise ConfigError(
            "kserve.image: wanted the image of the server by digest, found none in site.toml;"
            " components/images/build.py infer builds it"
        )
    if not site.store.url.startswith("s3:"):
        raise ConfigError(f"store.url: wanted s3://BUCKET/PREFIX for pods, found {site.store.url}; they see no folders")
    return _config_map(served, site, keys), _inference_service(served, site, keys)


def heading(served: ServedVersion, site: Site) -> str:
    """Comment at the head of the file: what is not in it and must exist, and what guards nothing."""
    keys = [f"{STORE_CREDENTIALS}, which only reads the store"] if _has_secret(site) else []
    lines = []
    if site.infer.token is not None and served.hugging_face is None:
        keys.append(f"{_TOKEN_KEY}, the bearer token of callers")
    elif site.infer.token is not None:
        lines.append("# KServe's runtime asks callers for no token: infer.token of the site guards nothing here.")
    if keys:
        where = f"Secret {site.kserve.secret} in namespace {site.kserve.namespace}"
        lines.insert(0, f"# Must exist first: {where} with {' and '.join(keys)}.")
    return "".join(f"{line}\n" for line in lines)


def _metadata(served: ServedVersion, site: Site, name: str) -> Object:
    labels = {
        MANAGED_BY: "gangline",
        MODEL: served.model,
        VERSION: str(served.version),
        COMMIT: served.commit[:12],
    }
    return {"name": name, "namespace": site.kserve.namespace, "labels": labels}


def _config_map(served: ServedVersion, site: Site, keys: Mapping[str, bytes]) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(served, site, f"{served.name}-site"),
        "data": {"site.toml": _site_text(site, keys)} | {_key_file(key): keys[key].decode() for key in sorted(keys)},
    }


def _site_text(site: Site, keys: Iterable[str]) -> str:
    """What the init container knows of the site; strings of JSON are strings of TOML."""
    store = {
        "url": site.store.url,
        "endpoint": site.store.cluster_endpoint or site.store.endpoint,
        "region": site.store.region,
        "credentials": f"secret:file:{SECRETS_FOLDER}/{STORE_CREDENTIALS}" if _has_secret(site) else "aws:role",
    }
    tables: dict[str, Mapping[str, object]] = {
        "store": {name: value for name, value in store.items() if value is not None},
        "sign": {"identities": sorted(keys)},
    }
    lines: list[str] = []
    for table, values in tables.items():
        lines += [
            f"[{table}]",
            *(f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in values.items()),
        ]
    return "\n".join(lines) + "\n"


def _has_secret(site: Site) -> bool:
    """Whether the init container has a key in a Secret, not a role of its service account."""
    return site.store.credentials != "aws:role"


def _key_file(key_id: str) -> str:
    return f"{key_id}.pub"


def _inference_service(served: ServedVersion, site: Site, keys: Iterable[str]) -> Object:
    kserve = site.kserve
    predictor: Object = {
        "minReplicas": kserve.min_replicas,
        "maxReplicas": kserve.max_replicas,
        **_pod(site),
        "volumes": _volumes(served, site, keys),
        "initContainers": [_verifier(served, site)],
    }
    if served.hugging_face is None:
        predictor["containers"] = [_server(served, site)]
    else:
        predictor["model"] = _language_model(served, served.hugging_face, site)
    return {
        "apiVersion": GROUP_VERSION,
        "kind": "InferenceService",
        "metadata": _metadata(served, site, served.name) | {"annotations": {MODE: kserve.mode}},
        "spec": {"predictor": predictor},
    }


def _pod(site: Site) -> Object:
    pod = site.pod
    found: Object = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": unprivileged(pod.user),
    }
    if site.kserve.mode == "Standard":  # Knative takes neither this nor `preStop`: it ends pods by rules of its own
        found["terminationGracePeriodSeconds"] = _SPREAD_SECONDS + _DRAIN_SECONDS
    if not _has_secret(site):
        found["serviceAccountName"] = pod.account
    if pod.pull_secrets:
        found["imagePullSecrets"] = [{"name": name} for name in pod.pull_secrets]
    if pod.selector:
        found["nodeSelector"] = dict(pod.selector)
    if pod.tolerate:
        found["tolerations"] = [{"key": key, "operator": "Exists"} for key in pod.tolerate]
    return found


def _volumes(served: ServedVersion, site: Site, keys: Iterable[str]) -> list[Object]:
    files = [{"key": "site.toml", "path": "site.toml"}]
    files += [{"key": _key_file(each), "path": f"gangline/keys/{_key_file(each)}"} for each in sorted(keys)]
    found: list[Object] = [
        {"name": "model", "emptyDir": {"sizeLimit": str(int(site.pod.disk_bytes))}},
        {"name": "tmp", "emptyDir": {"sizeLimit": str(_TMP_BYTES)}},
        {"name": "site", "configMap": {"name": f"{served.name}-site", "items": files}},
    ]
    if _has_secret(site):
        key = [{"key": STORE_CREDENTIALS, "path": STORE_CREDENTIALS}]
        secret = {"secretName": site.kserve.secret, "items": key, "defaultMode": 0o440}
        found.append({"name": "secrets", "secret": secret})
    return found


def _verifier(served: ServedVersion, site: Site) -> Object:
    """Init container that leaves the version's files and its code in the pod, or fails and says which part is wrong."""
    mounts: list[Object] = [
        {"name": "model", "mountPath": MOUNT},
        {"name": "tmp", "mountPath": _TMP},
        {"name": "site", "mountPath": _SITE_FOLDER, "readOnly": True},
    ]
    if _has_secret(site):
        mounts.append({"name": "secrets", "mountPath": SECRETS_FOLDER, "readOnly": True})
    command = ["gangline", "verify", f"{served.model}/{served.version}", "--replace", "--into", MODEL_FOLDER]
    if served.hugging_face is None:
        command += ["--code", CODE_FOLDER]
    asked = {name: quantity for name, quantity in _resources(site).items() if name in ("cpu", "memory")}
    return {
        "name": "verify",
        "image": site.kserve.image,
        "imagePullPolicy": site.pod.pull,
        "command": command,  # another sandbox of the same pod finds what the first one left
        "env": _variables(
            GANGLINE_SITE=f"{_SITE_FOLDER}/site.toml", HOME=_TMP, TMPDIR=MOUNT, XDG_CONFIG_HOME=_SITE_FOLDER
        ),
        "workingDir": _TMP,
        **_confined(asked),
        "volumeMounts": mounts,
    }


def _server(served: ServedVersion, site: Site) -> Object:
    where = ["--host", "0.0.0.0", "--port", str(PORT)]  # noqa: S104 -- the gateway and the kubelet ask at the pod's address
    which = ["--name", served.model, "--version", str(served.version)]
    which += ["--max-request-bytes", str(int(site.infer.max_request_bytes))]
    return {
        "name": "kserve-container",
        "image": site.kserve.image,
        "imagePullPolicy": site.pod.pull,
        "command": ["python", "-m", "gangline.infer", MODEL_FOLDER, "--code", CODE_FOLDER, *which, *where],
        "env": [*_variables(HOME=_TMP), *_token(site)],
        "workingDir": _TMP,
        "ports": [{"name": "http1", "containerPort": PORT, "protocol": "TCP"}],  # Knative takes no other name
        **_answering(site),
    }


def _token(site: Site) -> list[Object]:
    if site.infer.token is None:
        return []
    key = {"name": site.kserve.secret, "key": _TOKEN_KEY}
    return [{"name": _TOKEN, "valueFrom": {"secretKeyRef": key}}]


def _language_model(served: ServedVersion, folder: str, site: Site) -> Object:
    """KServe's runtime of Hugging Face folders; it asks no hub, and loads safetensors alone."""
    arguments = [f"--model_name={served.model}", f"--model_dir={MODEL_FOLDER}/{folder}", "--load-format=safetensors"]
    return {
        "modelFormat": {"name": "huggingface"},
        "runtime": HUGGING_FACE,
        "protocolVersion": "v2",
        "args": [literal(argument) for argument in arguments],
        "env": _variables(HF_HUB_OFFLINE="1", HOME=_TMP, TRANSFORMERS_OFFLINE="1"),
        **_answering(site),
    }


def _answering(site: Site) -> Object:
    """Probes, resources, confinement and mounts of the container that answers."""

    def probe(name: str, **timing: int) -> Object:
        return {"httpGet": {"path": f"/v2/health/{name}", "port": PORT}, "timeoutSeconds": _TRY_SECONDS, **timing}

    found: Object = {
        "startupProbe": probe("ready", periodSeconds=_TRY_SECONDS, failureThreshold=_START_TRIES),
        "readinessProbe": probe("ready", periodSeconds=_TRY_SECONDS),
        "livenessProbe": probe("live", periodSeconds=4 * _TRY_SECONDS),
        **_confined(_resources(site)),
        "volumeMounts": [
            {"name": "model", "mountPath": MOUNT, "readOnly": True},
            {"name": "tmp", "mountPath": _TMP},
        ],
    }
    if site.kserve.mode == "Standard":
        found["lifecycle"] = {"preStop": {"sleep": {"seconds": _SPREAD_SECONDS}}}
    return found


def _resources(site: Site) -> dict[str, str]:
    one_rank = {"cpu": f"{site.pod.cpus:g}", "memory": str(int(site.pod.memory_bytes))}
    return one_rank | site.kserve.resources


def _confined(asked: dict[str, str]) -> Object:
    return {
        "resources": {"requests": asked, "limits": dict(asked)},
        "securityContext": confinement(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _variables(**values: str) -> list[Object]:
    named = values | {"LOGNAME": USER}  # the uid has no name in foreign images
    return [{"name": name, "value": named[name]} for name in sorted(named)]
