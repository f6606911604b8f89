"""An API server that loses its client: before the k-th write, after it, or with every answer of a kind."""

import random
from collections.abc import Callable, Iterator
from typing import Any

from gangline.launch.kubernetes.client.api import ApiUnavailable

WRITES = ("create", "patch", "replace", "delete")


class Killed(BaseException):
    """The driver dies here: nothing of it may catch this."""


class Crashing:
    """Any `KubernetesApi`, but for the write at `point`: not sent (`before`), or its answer is lost (`after`)."""

    def __init__(self, api: Any, *, point: int | None = None, when: str = "before") -> None:
        self._api, self._point, self._when = api, point, when
        self.namespace = api.namespace
        self.writes: list[str] = []

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._api, name)
        return self._watched(name, call) if name in WRITES else call

    def _watched(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def write(path: str, *arguments: Any, **options: Any) -> Any:
            self.writes.append(f"{name} {path}")
            is_it = len(self.writes) - 1 == self._point
            if is_it and self._when == "before":
                raise Killed
            answer = call(path, *arguments, **options)
            if is_it:
                raise Killed
            return answer

        return write


class Losing:
    """Any `KubernetesApi`: every create happens, and every `share`-th answer of one is lost."""

    def __init__(self, api: Any, *, share: int = 1) -> None:
        self._api, self._share, self._count = api, share, 0
        self.namespace = api.namespace

    def __getattr__(self, name: str) -> Any:
        return getattr(self._api, name)

    def create(self, path: str, body: dict[str, Any], *, dry_run: bool = False) -> Any:
        made = self._api.create(path, body, dry_run=dry_run)
        self._count += 1
        if self._count % self._share == 0:
            raise ApiUnavailable("the answer was lost on its way")
        return made


class Closing:
    """Any `KubernetesApi` that can be closed: nothing gets through, watches break."""

    def __init__(self, api: Any) -> None:
        self._api = api
        self.namespace = api.namespace
        self.is_closed = False

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._api, name)
        return self._streamed(call) if name in ("watch", "logs") else self._answered(call)

    def _answered(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def ask(*arguments: Any, **options: Any) -> Any:
            self._check()
            return call(*arguments, **options)

        return ask

    def _streamed(self, call: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
        def stream(*arguments: Any, **options: Any) -> Iterator[Any]:
            self._check()
            for each in call(*arguments, **options):
                self._check()
                yield each

        return stream

    def _check(self) -> None:
        if self.is_closed:
            raise ApiUnavailable("nobody answers")


class Shaky:
    """Any `KubernetesApi`, seeded: a share of its calls is not sent, and of as many the answer is lost."""

    def __init__(self, api: Any, *, share: float, seed: int) -> None:
        self._api, self._share, self._dice = api, share, random.Random(seed)
        self.namespace = api.namespace

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._api, name)

        def ask(*arguments: Any, **options: Any) -> Any:
            thrown = self._dice.random()
            if thrown < self._share / 2:
                raise ApiUnavailable("not sent")
            answer = call(*arguments, **options)
            if thrown < self._share:
                raise ApiUnavailable("the answer was lost")
            return answer

        return ask
