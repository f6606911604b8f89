"""What a Jenkins is given: the Jenkinsfile of a model repository, and the controller's library, pods and settings.

They lie in `jenkins/` of the checkout that this package was imported from, or in its wheel.
"""

from pathlib import Path

import gangline
from gangline.errors import ConfigError

_PACKAGE = Path(str(gangline.__file__)).parent
_KINDS = {".groovy", ".txt", ".yaml"}


def jenkinsfile() -> str:
    """The pipeline; the same for every model repository."""
    return (_folder() / "Jenkinsfile").read_text("utf-8")


def jenkins_files() -> dict[str, str]:
    """Path to text, as they lie in a model repository: `Jenkinsfile` at its top, the rest below `jenkins/`."""
    folder = _folder()
    rest = sorted(path for path in folder.rglob("*") if path.suffix in _KINDS)
    return {"Jenkinsfile": jenkinsfile()} | {
        f"jenkins/{path.relative_to(folder).as_posix()}": path.read_text("utf-8") for path in rest
    }


def _folder() -> Path:
    candidates = (_PACKAGE.parents[1] / "jenkins", _PACKAGE / "definitions" / "jenkins")
    found = next((each for each in candidates if (each / "Jenkinsfile").is_file()), None)
    if found is None:
        looked = " or ".join(map(str, candidates))
        raise ConfigError(f"wanted the files for Jenkins in {looked}, found none; install gangline anew")
    return found
