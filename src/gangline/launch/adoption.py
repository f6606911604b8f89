"""May a gang that stands be taken for the one that is wanted? By value, field by field: every launcher asks this."""

from dataclasses import asdict

from gangline.errors import IntegrityError
from gangline.spec.podset import PodSet


def demand_equal(found: PodSet, wanted: PodSet) -> None:
    """Raises `IntegrityError` that names the fields in which the gang that stands differs from the wanted one."""
    if found != wanted:  # by value: JSON makes 20 of 20.0
        raise IntegrityError(
            f"gang {wanted.name} stands already and was asked for differently: "
            f"{'; '.join(differing_fields(found, wanted))}; cancel it, or start another attempt"
        )


def differing_fields(found: PodSet, wanted: PodSet) -> list[str]:
    """`name: found -> wanted` of every field that differs."""
    ours, theirs = asdict(wanted), asdict(found)
    return [f"{name}: {theirs[name]!r} -> {ours[name]!r}" for name in ours if ours[name] != theirs[name]]
