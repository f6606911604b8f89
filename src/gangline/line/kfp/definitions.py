"""Where pipelines and components are defined: a folder that holds both is a definitions root.

The model repository's own wins; then the checkout this package was imported from; then the copy in the wheel. A root is
imported by a child process alone, so nothing called `pipelines` ever lies on this process's path.
"""

from pathlib import Path

import gangline
from gangline.errors import ConfigError

_PACKAGE: Path = Path(str(gangline.__file__)).parent
PIPELINE = "train_line"


def find_root(repo: Path | None = None) -> Path:
    """Definitions for the line of `repo`.

    Raises:
        ConfigError: This installation has none.
    """
    candidates = (*([repo] if repo else []), _PACKAGE.parents[1], _PACKAGE / "definitions")
    root = next((each for each in candidates if is_root(each)), None)
    if root is None:
        looked = ", ".join(map(str, candidates))
        raise ConfigError(f"wanted a folder with pipelines/{PIPELINE}.py and components/, found none among {looked}")
    return root


def is_root(folder: Path) -> bool:
    return (folder / "pipelines" / f"{PIPELINE}.py").is_file() and (folder / "components").is_dir()
