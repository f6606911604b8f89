"""Creates a gang's objects; after every single write the next submit can complete the rest.

The root comes first, suspended and in no queue: it holds nothing. Then come the objects that belong to it, each created
with the root as its owner, so that deleting the root deletes them. One last write makes the root runnable.

The Secret of a gang is written whole, never read, patched or deleted. The response to a PUT shows what was sent; a
patch responds with all that the Secret holds, and so does a foreground delete: an account that may do one of these may
read every Secret of the namespace.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from gangline.errors import CapacityError
from gangline.launch.kubernetes.client.api import (
    ApiConflict,
    ApiQuotaExceeded,
    ApiRejected,
    ApiUnavailable,
    KubernetesApi,
    Object,
    parse_path,
)
from gangline.launch.kubernetes.lifecycle.final_state import read_final_state
from gangline.launch.kubernetes.objects.labels import GANG, secret_name
from gangline.launch.kubernetes.objects.render import Rendered, owned, owner_patch
from gangline.launch.kubernetes.objects.service_and_secret import secret, secrets_path
from gangline.launch.kubernetes.state.roots import Root, RootKind, find_root, require_same_podset
from gangline.launch.protocol import Gang, require_equal
from gangline.spec.gang.podset import PodSet

POLL_SECONDS = 0.5
ATTEMPTS = 8
"""Creations whose answer is lost, or that another submitter wins, in a row."""
_RUNTIME_SECONDS = 10.0
"""How long Trainer's webhook may not know a runtime that was just created."""
_LEAVING_SECONDS = 120.0
"""How long the deletion of an earlier gang of the name may outlast its grace."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Submitter:
    """Creates gangs; `render` gives the objects of a PodSet, `secrets` the value of a secret by name."""

    api: KubernetesApi
    kinds: tuple[RootKind, ...]
    render: Callable[[PodSet, datetime], Rendered]
    secrets: Callable[[str], bytes]

    def submit(self, podset: PodSet) -> Gang:
        found = self._existing(podset)
        if isinstance(found, Gang):
            return found
        if found is not None and not found.is_suspended:  # released, whatever its queue has become since
            return Gang(name=podset.name, uid=found.uid, podset=podset.digest, adopted=True)
        adopted = found is not None
        rendered = self.render(podset, datetime.now(UTC))
        root = found or self._create(podset, rendered)
        if root.outcome is None and root.cancelled is None and not _is_released(root, rendered.release):
            self._complete(podset, rendered, root)
        return Gang(name=podset.name, uid=root.uid, podset=podset.digest, adopted=adopted)

    def _existing(self, podset: PodSet) -> Root | Gang | None:
        """What exists under the name: a root with the same PodSet, or the final state of an earlier one."""
        root = self._wait_while_leaving(podset)
        if root is not None:
            require_same_podset(root, podset)
            return root
        final_state = read_final_state(
            self.api, podset.name
        )  # read after the root, as it is written before a root is deleted
        if final_state is None:
            return None
        require_equal(final_state.podset, podset)
        return Gang(name=podset.name, uid=final_state.uid, podset=podset.digest, adopted=True)

    def _wait_while_leaving(self, podset: PodSet) -> Root | None:
        deadline = time.monotonic() + podset.grace_seconds + _LEAVING_SECONDS
        while (root := find_root(self.api, podset.name, self.kinds)) is not None and root.is_being_deleted:
            if time.monotonic() > deadline:
                since = root.object["metadata"]["deletionTimestamp"]
                raise CapacityError(
                    f"gang {podset.name}: an earlier gang of this name is being deleted since {since} and still exists;"
                    f" to see its pods: kubectl -n {self.api.namespace} get pods -l gangline/gang={podset.name}"
                )
            time.sleep(POLL_SECONDS)
        return root

    def _create(self, podset: PodSet, rendered: Rendered) -> Root:
        """Create the root, or adopt one that another submitter created. Raises `CapacityError` if both keep failing."""
        for path, body in rendered.before:
            self._put(path, body)
        for _ in range(ATTEMPTS):
            try:
                made = self._create_root(rendered)
                return Root(f"{rendered.root_path}/{podset.name}", made)
            except (ApiConflict, ApiUnavailable):
                root = self._wait_while_leaving(podset)
            if root is not None:
                require_same_podset(root, podset)
                return root
        raise CapacityError(
            f"gang {podset.name}: {ATTEMPTS} times its root was created and not found afterwards;"
            " the API server loses writes"
        )

    def _create_root(self, rendered: Rendered) -> Object:
        deadline = time.monotonic() + _RUNTIME_SECONDS
        while True:
            try:
                return self.api.create(rendered.root_path, rendered.root)
            except ApiRejected as error:
                if "must be created before" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(POLL_SECONDS)

    def _complete(self, podset: PodSet, rendered: Rendered, root: Root) -> None:
        for path, body in rendered.before:
            self.api.patch(f"{path}/{body['metadata']['name']}", owner_patch(root.object))
        values = {name: self.secrets(name) for name in podset.secrets}
        if values:
            put_secret(self.api, root, values)
        for path, body in rendered.around:
            self._put(path, owned(body, root.object))
        for path, body in rendered.shared:
            self._take(path, owned(body, root.object))
        # with the uid: a root that was deleted and created again belongs to another submitter
        self.api.patch(root.path, _merged({"metadata": {"uid": root.uid}}, rendered.release))

    def _put(self, path: str, body: Object) -> None:
        """Create the object, or patch the existing one to the same content."""
        try:
            self.api.create(path, body)
        except (ApiConflict, ApiUnavailable):
            if self.api.patch(f"{path}/{body['metadata']['name']}", body) is None:
                self.api.create(path, body)

    def _take(self, path: str, body: Object) -> None:
        """Create an object whose name other gangs want, too, or take it over from one that has ended.

        Raises:
            CapacityError: Another gang has it.
        """
        place, own = f"{path}/{body['metadata']['name']}", body["metadata"]["labels"][GANG]
        try:
            self.api.create(path, body)
        except ApiConflict:
            patch = self.api.patch(place, {})  # accounts of drivers may not read it, and a patch answers with it
            if patch is None:
                self.api.create(path, body)
                return
            holder = str((patch["metadata"].get("labels") or {}).get(GANG, ""))
            if holder != own:
                self._require_ended(holder, place)
            version = {"metadata": {"resourceVersion": patch["metadata"]["resourceVersion"]}}
            self.api.patch(place, _merged(body, version))

    def _require_ended(self, holder: str, place: str) -> None:
        """Raises CapacityError unless `holder` was a gang, and has ended."""
        root = find_root(self.api, holder, self.kinds) if holder else None
        if not holder or (root is not None and root.outcome is None):
            who = f"gang {holder}" if holder else "an object that is no gang's"
            raise CapacityError(
                f"wanted {parse_path(place)} for the members of this run, found that {who} has it; one federated run at"
                " a time uses a kit"
            )


def _is_released(root: Root, release: Mapping[str, object]) -> bool:
    """Whether the last write was done; what a scheduler has changed since does not count."""
    marks = [(part, name) for part in ("annotations", "labels") for name in _marks(release, part)]
    metadata = root.object["metadata"]
    if marks:
        return all(name in (metadata.get(part) or {}) for part, name in marks)
    return not root.is_suspended


def _marks(release: Mapping[str, object], part: str) -> Mapping[str, object]:
    metadata = release.get("metadata")
    found = metadata.get(part) if isinstance(metadata, dict) else None
    return found or {}


def _merged(left: Object, right: Mapping[str, object]) -> Object:
    """`left` updated with `right`, recursively."""
    result = dict(left)
    for key, value in right.items():
        below = result.get(key)
        result[key] = _merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return result


def put_secret(api: KubernetesApi, root: Root, values: Mapping[str, bytes]) -> None:
    """Create or replace the Secret of the gang with these values."""
    body = owned(secret(root.podset(), values, job=root.job), root.object)
    path = secrets_path(api.namespace)
    try:
        api.create(path, body)
    except (ApiConflict, ApiQuotaExceeded, ApiUnavailable):  # an existing one may be reported as a full quota
        if api.replace(f"{path}/{secret_name(root.job)}", body) is None:
            raise
