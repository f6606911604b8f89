"""An admin of NVFlare as a process: python -m tests.flare.admin KIT CLIENTS ORDERS.json, answers as JSON.

NVFlare's session does not work in a process that turns warnings into errors, as pytest does.
"""

import json
import sys
import time
from pathlib import Path

from nvflare.fuel.flare_api.flare_api import new_secure_session


def ended(session, job, *, seconds=90.0):
    """What the server says of a job once it has ended."""
    deadline = time.monotonic() + seconds
    while not (found := session.get_job_meta(job))["status"].startswith("FINISHED"):
        assert time.monotonic() < deadline, found
        time.sleep(0.5)
    return found


def main(kit, clients, orders):
    """Read a file of each member, then run the jobs one after the other."""
    session = new_secure_session(Path(kit).name, kit, timeout=60.0)
    deadline = time.monotonic() + 60
    while len(session.get_system_info().client_info) < int(clients):
        assert time.monotonic() < deadline
        time.sleep(0.5)
    wanted = json.loads(Path(orders).read_text())
    found = {"files": {each: session.cat_target(each, file="startup/fed_client.json") for each in wanted["files"]}}
    found["jobs"] = {name: ended(session, session.submit_job(folder)) for name, folder in wanted["jobs"].items()}
    session.close()
    print("ANSWER" + json.dumps(found, default=str))


if __name__ == "__main__":
    main(*sys.argv[1:])
