"""Does the API server answer? Asked by its address on 127.0.0.1, which is the same on the host and inside."""

import ssl
import urllib.error
import urllib.request

from tests.cluster.rig import places


def ready(path: str = "/readyz") -> bool:
    keys = places.keys()
    context = ssl.create_default_context(cafile=str(keys / "ca.crt"))
    context.load_cert_chain(keys / "admin.crt", keys / "admin.key")
    url = f"https://127.0.0.1:{places.api_port()}{path}"
    try:
        with urllib.request.urlopen(url, timeout=2, context=context) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False
