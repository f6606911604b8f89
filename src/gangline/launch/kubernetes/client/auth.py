"""Credentials and TLS for an API server, from a kubeconfig or from the pod's service account, read by `kubernetes`.

Tokens, exec plugins, client certificates and TLS are the business of that package. Importing it takes a second, so it
is imported only when a cluster is asked for.
"""

import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gangline.errors import ConfigError
from gangline.http.client import HttpClient

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_CONNECTIONS = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class ApiSession:
    """Connection pool of one API server, and the credentials that go with each request."""

    server: str
    """Scheme, host and port."""
    namespace: str
    """Namespace of the kubeconfig context or of the pod; `default` if neither names one."""
    http: HttpClient
    """Client with the TLS and the proxy of the kubeconfig."""
    headers: Callable[[], dict[str, str]]
    """Authorization header for the next request: expired tokens are read again."""


def sign_in(environ: Mapping[str, str], *, context: str | None = None) -> ApiSession:
    """Session of `context` (None: the current one) of `$KUBECONFIG` or `~/.kube/config`, else of the pod's account.

    Raises:
        ConfigError: There is neither a kubeconfig nor a pod account, the kubeconfig is invalid, or the installed
            release of `kubernetes` adds its token to no request.
    """
    try:
        from kubernetes.client.configuration import Configuration
        from kubernetes.config import ConfigException
        from yaml import YAMLError
    except ImportError as error:
        raise ConfigError(
            "a cluster needs the package kubernetes, which is not here; pip install gangline[kubernetes]"
        ) from error
    configuration = Configuration()
    where = environ.get("KUBECONFIG") or str(Path(environ.get("HOME", "~")).expanduser() / ".kube" / "config")
    try:
        if _is_any(where):
            namespace = _from_kubeconfig(configuration, where, context)
        elif "KUBERNETES_SERVICE_HOST" in environ:
            namespace = _from_pod(configuration, environ)
        else:
            raise ConfigError(f"no cluster is known: no kubeconfig at {where}, and this is not a pod; set KUBECONFIG")
    except (TypeError, AttributeError) as error:
        raise ConfigError(
            f"kubeconfig {where} cannot be used: it is YAML, but not a kubeconfig; `kubectl config view` shows one"
        ) from error
    except (ConfigException, YAMLError, OSError, ValueError, KeyError) as error:
        raise ConfigError(f"kubeconfig {where} cannot be used: {' '.join(str(error).split())[:500]}") from error
    _use_proxy(configuration, environ)
    return _session(configuration, namespace)


def own_namespace() -> str | None:
    """Namespace of the pod in which this process runs; None: no pod, or a pod without a service account token."""
    try:
        return (_ACCOUNT / "namespace").read_text().strip() or None
    except OSError:
        return None


def _is_any(where: str) -> bool:
    return any(Path(part).expanduser().is_file() for part in where.split(":") if part)


def _from_kubeconfig(configuration: Any, where: str, context: str | None) -> str:
    from kubernetes.config import kube_config

    contexts, current = kube_config.list_kube_config_contexts(where)
    names = [each["name"] for each in contexts]
    wanted = context or current["name"]
    if wanted not in names:
        raise ConfigError(
            f"kubeconfig {where} has no context {wanted!r}; it has {', '.join(map(repr, names)) or 'none'}"
        )
    kube_config.load_kube_config(
        config_file=where, context=wanted, client_configuration=configuration, persist_config=False
    )
    chosen = contexts[names.index(wanted)]["context"]
    return str(chosen.get("namespace") or "default")


def _from_pod(configuration: Any, environ: Mapping[str, str]) -> str:
    from kubernetes.config.incluster_config import InClusterConfigLoader

    loader = InClusterConfigLoader(
        token_filename=str(_ACCOUNT / "token"), cert_filename=str(_ACCOUNT / "ca.crt"), environ=environ
    )
    loader.load_and_set(configuration)
    return own_namespace() or "default"


def _use_proxy(configuration: Any, environ: Mapping[str, str]) -> None:
    """Follow HTTPS_PROXY and NO_PROXY as kubectl does, never for a loopback address."""
    proxy = environ.get("HTTPS_PROXY") or environ.get("https_proxy")
    if proxy and configuration.host.startswith("https:") and not _is_loopback(configuration.host):
        configuration.proxy = proxy
        configuration.no_proxy = environ.get("NO_PROXY") or environ.get("no_proxy")


def _is_loopback(server: str) -> bool:
    host = urlsplit(server).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _session(configuration: Any, namespace: str) -> ApiSession:
    from kubernetes.client.rest import RESTClientObject

    configuration.retries = False  # the library's own would multiply ours
    configuration.connection_pool_maxsize = _CONNECTIONS
    http = HttpClient(pool=RESTClientObject(configuration).pool_manager)
    if configuration.api_key and not configuration.auth_settings():  # kubernetes 36.0.0: requests without a signature
        raise ConfigError(
            f"the package kubernetes {version('kubernetes')} has a token for {configuration.host} and adds it to no "
            "request; pip install 'gangline[kubernetes]' takes a release that does"
        )

    def headers() -> dict[str, str]:
        token = configuration.auth_settings().get("BearerToken", {}).get("value")
        return {"Authorization": token} if token else {}

    return ApiSession(server=configuration.host.rstrip("/"), namespace=namespace, http=http, headers=headers)
