"""OCI images without a daemon: equal members give equal bytes on every machine.

    layout = ImageLayout.create(folder)
    rootfs = layout.add_layer(members_of_folder(Path("rootfs"), exclude=("dev/*", "proc/*")))
    app = layout.add_layer([LayerMember("opt/app/run.py", data=b"...", mode=0o755)])
    image = layout.add_image([rootfs, app], settings=Settings(user="65532:65532", env={"PATH": "/usr/bin:/bin"}))
    registry.push(layout, image, tag="1")

`LayerMember` says what a layer holds, `Settings` what a container of the image starts with, `Descriptor` names a
blob.
"""

from gangline.build.oci.documents import Descriptor, Image, Platform, Settings
from gangline.build.oci.layout import ImageLayout, LayerMember, OciLayer, members_of_folder

__all__ = ["Descriptor", "Image", "ImageLayout", "LayerMember", "OciLayer", "Platform", "Settings", "members_of_folder"]
