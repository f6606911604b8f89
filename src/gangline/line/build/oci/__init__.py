"""OCI images without a daemon: the same members give the same bytes, here and on every other machine.

    layout = Layout.create(folder)
    rootfs = layout.add_layer(from_folder(Path("rootfs"), exclude=("dev/*", "proc/*")))
    app = layout.add_layer([Member("opt/app/run.py", data=b"...", mode=0o755)])
    image = layout.add_image([rootfs, app], settings=Settings(user="65532:65532", env={"PATH": "/usr/bin:/bin"}))
    registry.push(layout, image, tag="1")

`Member` says what a layer holds, `Settings` what a container of the image starts with, `Descriptor` names a blob.
"""

from gangline.line.build.oci.documents import Descriptor, Image, Platform, Settings
from gangline.line.build.oci.layer import Layer
from gangline.line.build.oci.layout import Layout
from gangline.line.build.oci.members import Member, from_folder

__all__ = ["Descriptor", "Image", "Layer", "Layout", "Member", "Platform", "Settings", "from_folder"]
