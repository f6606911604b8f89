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


def vouched(workspace, image, key=None):
    """Blob key of a provenance of `image`, by the workspace's key or another."""
    key = key or workspace.key
    office = ImageStore(store=workspace.store, key=key, trusted={key.key_id: key.public}, environ=workspace.environ)
    return record_base_image(image, image_store=office, commit=workspace.record.commit.sha).provenance


def place(workspace, image, *provenance):
    """The record as a run in `image` leaves it."""
    artifacts = tuple(
        Artifact(
            kind="image-provenance", key=key, media_type="application/json", size_bytes=1, sha256=key[len(PREFIX) :]
        )
        for key in provenance
    )
    inputs = replace(workspace.record.inputs, image=image)
    workspace.place(replace(workspace.record, inputs=inputs, artifacts=(*workspace.record.artifacts, *artifacts)))


def point(workspace):
    return promote(
        "bytegpt",
        1,
        "production",
        store=workspace.store,
        repo=workspace.repo,
        site=workspace.site,
        environ=workspace.environ,
        because="good",
        read_record=read_record,
    )


def test_an_image_with_its_provenance_is_promoted(published):
    workspace, _ = published
    place(workspace, IMAGE, vouched(workspace, IMAGE))
    assert point(workspace).version == 1


@pytest.mark.row("P8")
@pytest.mark.parametrize("strike", ["none at all", "of another image", "of a stranger", "a changed byte", "not there"])
def test_an_image_that_no_one_trusted_vouches_for_stops_the_promotion(published, strike, tmp_path):
    workspace, _ = published
    if strike == "none at all":
        place(workspace, IMAGE)
    elif strike == "of another image":
        place(workspace, IMAGE, vouched(workspace, OTHER))
    elif strike == "of a stranger":
        place(workspace, IMAGE, vouched(workspace, IMAGE, keys.signing_key(workspace.site, {"HOME": str(tmp_path)})))
    elif strike == "a changed byte":
        envelope = workspace.store.get(vouched(workspace, IMAGE)).data
        place(workspace, IMAGE, put_blob(workspace.store, envelope.replace(b'"payload":"ey', b'"payload":"eX')))
    else:
        place(workspace, IMAGE, PREFIX + "0" * 64)
    with pytest.raises(IntegrityError, match=r"bytegpt 1 is not promoted: .*image: "):
        point(workspace)
