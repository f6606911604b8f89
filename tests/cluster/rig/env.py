"""What programs need to know of the running cluster, as shell lines and as a table."""

from tests.cluster.images import recipes
from tests.cluster.images.importing import has
from tests.cluster.rig import places, store
from tests.cluster.rig.up import bring
from tests.cluster.servers.build import program


def environment() -> dict[str, str]:
    """Variables that tests understand; with them they run against this cluster as against any other.

    The images are those of the present code, and are brought when they are new.
    """
    reported = {
        "GANGLINE_TEST_KUBECONFIG": str(places.kubeconfig()),
        "GANGLINE_TEST_STORE_URL": f"s3://{store.BUCKET}",
        "GANGLINE_TEST_STORE_ENDPOINT": store.endpoint(),
        "GANGLINE_TEST_STORE_CLUSTER_ENDPOINT": store.CLUSTER_ENDPOINT,
        "GANGLINE_TEST_STORE_CREDENTIALS": store.credentials(),
        "GANGLINE_TEST_IMAGE": bring(recipes.small_base(), recipes.small()).reference,
    }
    if has(f"{recipes.TRAIN}-base"):
        reported["GANGLINE_TEST_TRAIN_IMAGE"] = bring(recipes.train_base(), recipes.train()).reference
    return reported


def shell() -> str:
    """To be evaluated by a shell."""
    lines = [f"export {name}={value}" for name, value in environment().items()]
    lines.append(f"export KUBECONFIG={places.kubeconfig()}")
    lines.append(f"export PATH={program('kubectl').parent}:$PATH")
    return "\n".join(lines)
