"""Rules of `site.toml` beyond the types of its values; a value in place of a secret reference is never repeated."""

import re
from collections.abc import Iterator, Mapping

from gangline.spec.config import grammar
from gangline.spec.config.data_keys import RESERVED, is_data_prefix
from gangline.spec.config.infer_table import KserveTable, SiteInferTable
from gangline.spec.config.problems import (
    ConfigProblem,
    at_least,
    one_of,
    show,
)
from gangline.spec.config.rules_fabric import failure_rules
from gangline.spec.config.rules_federated import federation_rules
from gangline.spec.config.secrets import FORMS, is_reference
from gangline.spec.config.site import (
    ForgeTable,
    GpuTable,
    KfpTable,
    LaunchTable,
    MetricsTable,
    RegistryTable,
    SandboxTable,
    ServeTable,
    SignTable,
    Site,
    SitePlanTable,
    StoreTable,
)
from gangline.spec.config.site_tables import (
    CacheTable,
    EnvironmentsTable,
    IndexTable,
    SlurmTable,
    SourceTable,
    TrackTable,
)
from gangline.spec.launchers import LAUNCHERS, TARGETS

_WITH_SECRETS = frozenset({"", "root", "home", "run", "var", "var/run", "var/lib", "etc", "proc", "sys", "dev"})
MOST_EXPERIMENT = 100
WEB = "an http or https URL without a password in it"

_ROUND_SECONDS = 60
"""Slurm counts limits in minutes, and its signal may come as much earlier."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.,:-]{0,127}")
_CONSTRAINT = re.compile(r"[A-Za-z0-9_.,:|&*()\[\]-]{1,256}")
_OURS = ("--array", "-a", "--wrap", "--job-name", "-J", "--comment", "--chdir", "-D", "--output", "-o", "--hold", "-H",
         "--parsable", "--nodes", "-N", "--ntasks", "-n", "--ntasks-per-node", "--signal")  # fmt: skip
"""Options by which a gang is started and found again."""


def site_rules(site: Site) -> Iterator[ConfigProblem]:
    """Problems of a whole `site.toml`."""
    yield from _store_rules(site.store)
    yield from _registry_rules(site.registry)
    yield from _launch_rules(site.launch)
    yield from slurm_rules(site.slurm, is_target=LAUNCHERS[TARGETS[site.launch.target][0]].has_jobs)
    for name, gpu in site.gpu.items():
        yield from _gpu_rules(f"gpu.{name}", gpu)
    yield from _plan_rules(site.plan)
    if not (len(site.money.currency) == 3 and site.money.currency.isalpha() and site.money.currency.isupper()):
        yield ConfigProblem("money.currency", "three capital letters", show(site.money.currency), '"EUR" works')
    yield from _sandbox_rules(site.sandbox)
    yield from _environment_rules(site.environments)
    yield from _index_rules(site.index)
    yield from _sign_rules(site.sign)
    yield from _project_rules(site.projects)
    yield from _forge_rules(site.forge)
    yield from _track_rules(site.track)
    yield from source_rules(site.source)
    yield from cache_rules(site.cache)
    yield from _serve_rules(site.serve)
    yield from _infer_rules(site.infer)
    yield from _metrics_rules(site.metrics)
    yield from _kfp_rules(site.kfp)
    yield from kserve_rules(site.kserve, gangs=site.launch.namespace)
    yield from federation_rules(site.federation)


def _url(key: str, value: str | None) -> Iterator[ConfigProblem]:
    if value is not None and not grammar.URL.fullmatch(value):
        yield ConfigProblem(key, WEB, "another" if "@" in value else show(value), "https://host:port/path works")


def _reference(key: str, value: str | None, forms: str = FORMS) -> Iterator[ConfigProblem]:
    if value is not None and not is_reference(value):
        yield ConfigProblem(key, "a reference to a secret", "a value that is not shown", f"write {forms}")


def _image(key: str, value: str | None) -> Iterator[ConfigProblem]:
    if value is not None and not grammar.IMAGE.fullmatch(value):
        yield ConfigProblem(key, "an image with @sha256:", show(value), "IMAGE@sha256:DIGEST works")


def _label(key: str, value: str | None) -> Iterator[ConfigProblem]:
    if value is not None and not grammar.LABEL.fullmatch(value):
        yield ConfigProblem(key, "a name of [a-z0-9-], at most 63 long", show(value))


def _slug(key: str, value: str, works: str = "") -> Iterator[ConfigProblem]:
    if not grammar.SLUG.fullmatch(value):
        yield ConfigProblem(key, "a name of [a-z][a-z0-9-]{0,19}", show(value), works)


def _store_rules(store: StoreTable) -> Iterator[ConfigProblem]:
    if not grammar.STORE_URL.fullmatch(store.url):
        yield ConfigProblem("store.url", grammar.STORE_FORMS, "another" if "@" in store.url else show(store.url))
    if store.url.startswith("s3:") and not store.endpoint:
        works = 'endpoint = "https://minio.example:9000" works'
        yield ConfigProblem("store.endpoint", "an endpoint for the s3 URL", "nothing", works)
    yield from _url("store.endpoint", store.endpoint)
    if not grammar.AWS_IDENTITY.fullmatch(store.credentials or ""):
        yield from _reference(
            "store.credentials", store.credentials, f"{FORMS}, aws:role, aws:profile:NAME or aws:cli:NAME"
        )
    for index, prefix in enumerate(store.data):
        if not is_data_prefix(prefix):
            wanted = f"a prefix of keys with a slash at its end, none of {', '.join(sorted(RESERVED))}"
            yield ConfigProblem(f"store.data[{index}]", wanted, show(prefix), '"data/" works')


def _registry_rules(registry: RegistryTable) -> Iterator[ConfigProblem]:
    yield from _image("registry.base", registry.base)
    if registry.builder != "none" and registry.image is None:
        yield ConfigProblem("registry.image", f"a name to push to with builder = {show(registry.builder)}", "nothing")


def _launch_rules(launch: LaunchTable) -> Iterator[ConfigProblem]:
    for name in ("namespace", "queue", "pool", "runtime"):
        yield from _label(f"launch.{name}", getattr(launch, name))


def _gpu_rules(key: str, gpu: GpuTable) -> Iterator[ConfigProblem]:
    if not 0 <= gpu.reserve_bytes < gpu.memory_bytes:
        found = f"memory_bytes = {gpu.memory_bytes:g}, reserve_bytes = {gpu.reserve_bytes:g}"
        yield ConfigProblem(key, "memory_bytes above reserve_bytes >= 0", found, "80e9 and 4e9 work")


def _plan_rules(plan: SitePlanTable) -> Iterator[ConfigProblem]:
    yield from failure_rules("plan.failures", plan.failures)
    if plan.saves_to is not None and plan.saves_to not in plan.storage:
        yield ConfigProblem("plan.saves_to", one_of(sorted(plan.storage)), show(plan.saves_to))


def _sandbox_rules(sandbox: SandboxTable) -> Iterator[ConfigProblem]:
    for index, path in enumerate(sandbox.read):
        parts = path.split("/")
        if not path.startswith("/") or {".", ".."} & set(parts) or "\0" in path:
            yield ConfigProblem(f"sandbox.read[{index}]", "an absolute path", show(path), '"/home/me/datasets" works')
        elif path.strip("/") in _WITH_SECRETS:
            yield ConfigProblem(
                f"sandbox.read[{index}]", "a folder without secrets", show(path), "name what is needed of it"
            )


def _environment_rules(table: EnvironmentsTable) -> Iterator[ConfigProblem]:
    for index, path in enumerate(table.find_links):
        if not path.startswith("/") or ".." in path.split("/") or not path.isprintable():
            yield ConfigProblem(
                f"environments.find_links[{index}]", "an absolute path", show(path), '"/srv/wheels" works'
            )


def _index_rules(indexes: dict[str, IndexTable]) -> Iterator[ConfigProblem]:
    for name, index in indexes.items():
        yield from _slug(f"index.{name}", name)
        yield from _url(f"index.{name}.url", index.url)
        yield from _reference(f"index.{name}.credentials", index.credentials)
    if len(default := [name for name, index in indexes.items() if index.default]) > 1:
        yield ConfigProblem(f"index.{default[1]}.default", "one index in place of the public one", f"{default[0]}, too")


def _sign_rules(sign: SignTable) -> Iterator[ConfigProblem]:
    yield from _reference("sign.key", sign.key)
    for name in ("identities", "forks"):
        for index, identity in enumerate(getattr(sign, name)):
            if not grammar.IDENTITY.fullmatch(identity):
                yield ConfigProblem(f"sign.{name}[{index}]", "a key id", show(identity), "`gangline keys` lists them")
    for both in sorted(set(sign.identities) & set(sign.forks)):
        yield ConfigProblem(
            "sign.forks", "keys that are not in sign.identities", show(both), "a key of its own for forks"
        )


def _project_rules(projects: dict[str, tuple[str, ...]]) -> Iterator[ConfigProblem]:
    for project, addresses in projects.items():
        key = f"projects.{project}"
        yield from _slug(key, project, "as project.name of its line says")
        if not addresses:
            yield ConfigProblem(key, "addresses of a repository", "none", f'["github.com/acme/{project}"] works')
        for index, address in enumerate(addresses):
            if not grammar.REPOSITORY.fullmatch(address):
                works = f'"github.com/acme/{project}", any URL that git clones, or an absolute folder'
                found = "another" if "@" in address else show(address)
                yield ConfigProblem(f"{key}[{index}]", "the address of a repository", found, works)


def _forge_rules(forges: dict[str, ForgeTable]) -> Iterator[ConfigProblem]:
    claimed: dict[str, str] = {}
    for name, forge in forges.items():
        key = f"forge.{name}"
        yield from _url(f"{key}.url", forge.url)
        yield from _reference(f"{key}.token", forge.token)
        yield from _reference(f"{key}.hook_secret", forge.hook_secret)
        for repository, project in forge.projects.items():
            place = f"{key}.projects.{repository}"
            if not grammar.SLUG.fullmatch(project):
                yield ConfigProblem(place, "the name of a project", show(project), "as project.name of its line says")
            elif project in claimed:
                yield ConfigProblem(place, "a project of its own", f"{show(project)}, claimed by {claimed[project]}")
            claimed.setdefault(project, place)


def _track_rules(trackers: dict[str, TrackTable]) -> Iterator[ConfigProblem]:
    for name, table in trackers.items():
        key = f"track.{name}"
        yield from _slug(key, name)
        yield from _url(f"{key}.url", table.url)
        yield from _reference(f"{key}.token", table.token)
        if table.kind == "mlflow" and table.url is None:
            yield ConfigProblem(f"{key}.url", "the address of its server", "nothing", '"http://127.0.0.1:5000" works')
        if table.kind != "mlflow" and table.models:
            yield ConfigProblem(f"{key}.models", 'kind = "mlflow", which has a registry', show(table.kind))
        if table.kind == "tensorboard" and table.programs:
            yield ConfigProblem(f"{key}.programs", 'kind = "mlflow" or "wandb"', show(table.kind))
        for place in ("path", "python"):
            value = getattr(table, place)
            if value is not None and not value.startswith(("/", "~/")):
                yield ConfigProblem(f"{key}.{place}", "an absolute path", show(value), '"~/tensorboard" works')
        left = table.experiment.replace("{project}", "p").replace("{branch}", "b")
        if not left.strip() or not left.isprintable() or {"{", "}"} & set(left) or len(left) > MOST_EXPERIMENT:
            wanted = (
                f"a name of at most {MOST_EXPERIMENT} characters, with {{project}} and {{branch}} as its only braces"
            )
            yield ConfigProblem(f"{key}.experiment", wanted, show(table.experiment), '"{project}" works')


def _serve_rules(serve: ServeTable) -> Iterator[ConfigProblem]:
    match = grammar.LISTEN.fullmatch(serve.listen)
    if not match or not 0 <= int(match["port"]) <= 65_535:
        yield ConfigProblem("serve.listen", "HOST:PORT", show(serve.listen), '"127.0.0.1:8321" works')
    elif match["host"] not in grammar.LOOPBACK and serve.tokens is None:
        yield ConfigProblem("serve.tokens", "tokens where others can reach it", "nothing", f"write {FORMS}")
    yield from _url("serve.public_url", serve.public_url)
    yield from _reference("serve.tokens", serve.tokens)
    for index, proxy in enumerate(serve.proxies):
        if not grammar.is_network(proxy):
            works = '"10.0.0.0/8" and "192.0.2.7" work'
            yield ConfigProblem(f"serve.proxies[{index}]", "an address or a network", show(proxy), works)


def _infer_rules(infer: SiteInferTable) -> Iterator[ConfigProblem]:
    if infer.host not in {*grammar.LOOPBACK, "::1"} and infer.token is None:
        yield ConfigProblem("infer.token", "a token where others can reach it", "nothing", f"write {FORMS}")
    yield from _reference("infer.token", infer.token)


def _metrics_rules(metrics: MetricsTable) -> Iterator[ConfigProblem]:
    if metrics.targets is not None and not metrics.targets.startswith(("/", "~")):
        yield ConfigProblem(
            "metrics.targets", "an absolute folder", show(metrics.targets), '"~/.gangline-targets" works'
        )
    yield from _url("metrics.grafana_url", metrics.grafana_url)


def _kfp_rules(kfp: KfpTable) -> Iterator[ConfigProblem]:
    yield from _url("kfp.endpoint", kfp.endpoint)
    yield from _url("kfp.ui_url", kfp.ui_url)
    yield from _reference("kfp.token", kfp.token)
    yield from _image("kfp.image", kfp.image)


_SOURCE_URL = re.compile(r"[a-z][a-z0-9+.-]*://([A-Za-z0-9._-]+@)?[^\s\0@]+")
"""Any scheme of fsspec, with a user's name at most before the host."""
_HOST = re.compile(r"[A-Za-z0-9.*?_-]+:[0-9]{1,5}")


def source_rules(sources: Mapping[str, SourceTable]) -> Iterator[ConfigProblem]:
    """Problems of all `[source.NAME]`; a URL that may hold a password is not repeated."""
    for name, table in sources.items():
        key = f"source.{name}"
        yield from _slug(key, name)
        scheme, _, rest = table.url.partition("://")
        if not _SOURCE_URL.fullmatch(table.url) or "::" in table.url:
            found = "another" if "@" in table.url else show(table.url)
            works = '"webhdfs://namenode:9870/corpora" and "file:///data" work; a password goes into credentials'
            yield ConfigProblem(f"{key}.url", "a URL of fsspec with its scheme", found, works)
        elif ".." in rest.split("/") or (scheme == "file" and not rest.startswith("/")):
            yield ConfigProblem(f"{key}.url", "an absolute path without ..", show(table.url), '"file:///data" works')
        yield from _reference(f"{key}.credentials", table.credentials)
        for index, host in enumerate(table.hosts):
            if not _HOST.fullmatch(host) or not host.rpartition(":")[0].strip("*?."):
                works = '"datanode-*.example:9864" works'
                yield ConfigProblem(
                    f"{key}.hosts[{index}]", "HOST:PORT, with * for a part of the name", show(host), works
                )


def cache_rules(cache: CacheTable) -> Iterator[ConfigProblem]:
    """Problems of `[cache]`."""
    if cache.path is not None:
        parts = cache.path.split("/")
        if not cache.path.startswith("/") or {".", ".."} & set(parts) or not cache.path.isprintable() or not any(parts):
            yield ConfigProblem("cache.path", "an absolute folder", show(cache.path), '"/nvme/gangline" works')


_RESOURCE = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_QUANTITY = re.compile(r"[0-9]{1,15}(\.[0-9]{1,9})?([munkMGTPE]|[KMGTPE]i)?")


def kserve_rules(kserve: KserveTable, *, gangs: str | None) -> Iterator[ConfigProblem]:
    """Problems of `[kserve]`; `gangs` is the namespace of gangs."""
    yield from _label("kserve.namespace", kserve.namespace)
    yield from _label("kserve.secret", kserve.secret)
    if kserve.namespace is not None and kserve.namespace == gangs:
        wanted = "another namespace than launch.namespace, for ranks run code of every branch"
        yield ConfigProblem("kserve.namespace", wanted, show(kserve.namespace), '"serving" works')
    yield from _image("kserve.image", kserve.image)
    for name, quantity in kserve.resources.items():
        if not _RESOURCE.fullmatch(name):
            yield ConfigProblem("kserve.resources", "names of resources", show(name), '"nvidia.com/gpu" works')
        if not _QUANTITY.fullmatch(quantity):
            wanted = "a quantity of Kubernetes"
            yield ConfigProblem(f"kserve.resources.{name}", wanted, show(quantity), '"1", "500m" and "4Gi" work')
    least = 0 if kserve.mode == "Knative" else 1
    yield from at_least("kserve.min_replicas", kserve.min_replicas, least)
    yield from at_least("kserve.max_replicas", kserve.max_replicas, max(kserve.min_replicas, 1))


def slurm_rules(slurm: SlurmTable, *, is_target: bool) -> Iterator[ConfigProblem]:
    """Problems of `[slurm]`; `is_target`: gangs of this site run there."""
    works = '"/shared/gangline" works'
    if is_target and slurm.shared is None:
        yield ConfigProblem("slurm.shared", "a folder that this machine and all servers see", "nothing", works)
    if slurm.shared is not None:
        parts = slurm.shared.split("/")
        if not slurm.shared.startswith("/") or {".", ".."} & set(parts) or not slurm.shared.isprintable():
            yield ConfigProblem("slurm.shared", "an absolute path", show(slurm.shared), works)
    for name in ("partition", "account", "qos"):
        value = getattr(slurm, name)
        if value is not None and not _NAME.fullmatch(value):
            yield ConfigProblem(f"slurm.{name}", "a name of letters, digits, _, ., - and commas", show(value))
    if slurm.constraint is not None and not _CONSTRAINT.fullmatch(slurm.constraint):
        yield ConfigProblem("slurm.constraint", "features, joined by & or |", show(slurm.constraint), '"h100&ib" works')
    least = slurm.margin_seconds + _ROUND_SECONDS
    if slurm.time_seconds is not None and slurm.time_seconds <= least:
        wanted = f"more than margin_seconds and a minute, {least} s together: the signal to save comes so early"
        yield ConfigProblem("slurm.time_seconds", wanted, show(slurm.time_seconds), "3600 works")
    yield from _word_rules(slurm)


def _word_rules(slurm: SlurmTable) -> Iterator[ConfigProblem]:
    for name in ("options", "via"):
        for index, word in enumerate(getattr(slurm, name)):
            if not word or not word.isprintable():
                yield ConfigProblem(f"slurm.{name}[{index}]", "a word of printable characters", show(word))
    for index, word in enumerate(slurm.options):
        if word.partition("=")[0] in _OURS:
            yield ConfigProblem(f"slurm.options[{index}]", "an option that gangline does not give", show(word))
        elif word and word.isprintable() and not word.startswith("-"):
            works = '"--reservation=maintenance" works, as one word'
            yield ConfigProblem(f"slurm.options[{index}]", "an option of sbatch", show(word), works)
