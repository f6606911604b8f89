"""A `site.toml` for lines that run on the test cluster, and the namespace it names."""

from tests.cluster import tenant
from tests.cluster.images import recipes
from tests.cluster.rig import kubectl, places, store
from tests.cluster.rig.up import bring


def make_site(namespace: str) -> str:
    """Set the namespace up as the manifests do; returns the text of the file. Secrets stay in files of mode 600."""
    own = kubectl.own()
    own.create_missing(tenant.shared_objects())
    own.apply(tenant.objects(namespace))
    image = bring(recipes.train_base(), recipes.train()).reference
    return f"""\
[store]
url = "s3://{store.BUCKET}/{namespace}"
endpoint = "{store.endpoint()}"
cluster_endpoint = "{store.CLUSTER_ENDPOINT}"
credentials = "secret:file:{_credentials_file()}"

[registry]
base = "{image}"

[launch]
target = "kubernetes"
namespace = "{namespace}"
launcher = "job"

[pod]
cpus = 0.5
memory_bytes = 2e9
shm_bytes = 64e6
disk_bytes = 1e9
"""


def _credentials_file() -> str:
    path = places.state() / "store-credentials"
    path.touch(mode=0o600)
    path.write_text(store.credentials())
    return str(path)
