"""Image references, parsed strictly: `HOST[:PORT]/REPOSITORY[:TAG][@sha256:DIGEST]`, without defaults."""

import re
from dataclasses import dataclass, replace

from gangline.errors import ConfigError
from gangline.http.address_check import is_loopback_name

_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_HOST = r"(?:localhost|[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+|\[[0-9a-fA-F:]+\]|[A-Za-z0-9-]+(?=:))(?::[0-9]{1,5})?"
_NAME = re.compile(
    rf"(?P<host>{_HOST})/(?P<repository>{_PART}(?:/{_PART})*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
MAX_NAME = 255


@dataclass(frozen=True, slots=True)
class ImageReference:
    """Name of an image, taken apart."""

    host: str
    """Host, with its port if one is given."""
    repository: str
    tag: str | None = None
    digest: str | None = None
    """`sha256:` and 64 hex digits; decides where there is a tag, too."""

    @staticmethod
    def parse(text: str) -> "ImageReference":
        """Raises ConfigError for a name without its host, without a repository, or of another form."""
        match = _NAME.fullmatch(text)
        if match is None or len(text) > MAX_NAME + 128:
            raise ConfigError(
                f"wanted an image as HOST/REPOSITORY:TAG or HOST/REPOSITORY@sha256:DIGEST, found {text[:200]!r};"
                " docker.io/library/python:3.11-slim works"
            )
        return ImageReference(match["host"], match["repository"], match["tag"], match["digest"])

    @property
    def name(self) -> str:
        """Host and repository, without tag and digest."""
        return f"{self.host}/{self.repository}"

    def at(self, digest: str) -> "ImageReference":
        """The same image by digest alone."""
        return replace(self, tag=None, digest=digest)

    def tagged(self, tag: str) -> "ImageReference":
        """The same repository with `tag`, without a digest."""
        return replace(self, tag=tag, digest=None)

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        return f"{self.name}{tag}" + (f"@{self.digest}" if self.digest else "")


def is_loopback(host: str) -> bool:
    """Is `host`, with or without a port, this machine? Only there is HTTP without TLS spoken."""
    bare = host.partition("]")[0].removeprefix("[") if host.startswith("[") else host.partition(":")[0]
    return is_loopback_name(bare)
