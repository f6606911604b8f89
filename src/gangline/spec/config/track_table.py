"""`[track.NAME]` of a site as frozen data: which trackers runs are mirrored into."""

from dataclasses import dataclass
from typing import Annotated, Literal

from gangline.spec.bounds import Bound


@dataclass(frozen=True, kw_only=True, slots=True)
class TrackTable:
    """One tracker that runs are mirrored into, as `[track.NAME]`."""

    kind: Literal["mlflow", "wandb", "tensorboard"]
    """Which tracker it is."""
    url: str | None = None
    """Address of its server; none: the public service of Weights & Biases."""
    token: str | None = None
    """Reference to the token of its API."""
    mode: Literal["online", "offline"] = "online"
    """Whether Weights & Biases is sent to a server, or written into a folder that `wandb sync` sends later."""
    path: str | None = None
    """Folder for TensorBoard, or for offline runs of Weights & Biases; none: `trackers/NAME` in the
    repository's `.gangline`."""
    experiment: str = "{project}"
    """Experiment or project of the tracker; `{project}` and `{branch}` are replaced."""
    every_seconds: Annotated[float, Bound(least=0.1)] = 30.0
    """Time between two sends while a run goes on."""
    python: str | None = None
    """Interpreter that has the tracker's package; none: the one that gangline runs with."""
    models: bool = False
    """Mirror published versions and aliases into MLflow's registry of models."""
    programs: bool = False
    """Give rank 0 of own commits the address and the run, so that a program that tracks by itself joins it."""
