"""A version whose ranks ran in an image is promoted only where a trusted key vouches for that image."""

from dataclasses import replace

import pytest

from gangline.build.image_store import ImageStore, record_base_image
from gangline.errors import IntegrityError
from gangline.line.record.store import read_record
from gangline.registry.promote import promote
from gangline.signing import keys
from gangline.spec.record import Artifact
from gangline.storage.objects.blobs import PREFIX, put_blob

IMAGE = f"registry.example/team/env@sha256:{'c' * 64}"
OTHER = f"registry.example/team/env@sha256:{'d' * 64}"


def vouched(desk, image, key=None):
    """Blob key of a provenance of `image`, by the desk's key or another."""
    key = key or desk.key
    office = ImageStore(store=desk.store, key=key, trusted={key.key_id: key.public}, environ=desk.environ)
    return record_base_image(image, image_store=office, commit=desk.record.commit.sha).provenance


def place(desk, image, *provenance):
    """The record as a run in `image` leaves it."""
    artifacts = tuple(
        Artifact(
            kind="image-provenance", key=key, media_type="application/json", size_bytes=1, sha256=key[len(PREFIX) :]
        )
        for key in provenance
    )
    inputs = replace(desk.record.inputs, image=image)
    desk.place(replace(desk.record, inputs=inputs, artifacts=(*desk.record.artifacts, *artifacts)))


def point(desk):
    return promote(
        "bytegpt",
        1,
        "production",
        store=desk.store,
        repo=desk.repo,
        site=desk.site,
        environ=desk.environ,
        because="good",
        read_record=read_record,
    )


def test_an_image_with_its_provenance_is_promoted(published):
    desk, _ = published
    place(desk, IMAGE, vouched(desk, IMAGE))
    assert point(desk).version == 1


@pytest.mark.row("P8")
@pytest.mark.parametrize("strike", ["none at all", "of another image", "of a stranger", "a changed byte", "not there"])
def test_an_image_that_nobody_trusted_vouches_for_stops_the_promotion(published, strike, tmp_path):
    desk, _ = published
    if strike == "none at all":
        place(desk, IMAGE)
    elif strike == "of another image":
        place(desk, IMAGE, vouched(desk, OTHER))
    elif strike == "of a stranger":
        place(desk, IMAGE, vouched(desk, IMAGE, keys.signing_key(desk.site, {"HOME": str(tmp_path)})))
    elif strike == "a changed byte":
        envelope = desk.store.get(vouched(desk, IMAGE)).data
        place(desk, IMAGE, put_blob(desk.store, envelope.replace(b'"payload":"ey', b'"payload":"eX')))
    else:
        place(desk, IMAGE, PREFIX + "0" * 64)
    with pytest.raises(IntegrityError, match=r"bytegpt 1 is not promoted: .*image: "):
        point(desk)
