"""Workers of a service in a process of their own, to be killed or cut off.

`python order_service.py YARD [HOME DATABASE]`: HOME is a folder of the yard, DATABASE a URL.
"""

import os
import sys
import threading
from dataclasses import replace
from pathlib import Path

from tests.serve.hook_service import service_context
from tests.serve.orders.yard import DRIVER

from gangline.cli.log_setup import set_up_logs
from gangline.serve.database.open import open_database
from gangline.serve.orders import order_runner, workers
from gangline.serve.orders.workers import OrderService
from gangline.spec.config.load import load_site


def main():
    set_up_logs({})
    folder = Path(sys.argv[1])
    workers.LEASE_SECONDS, workers.RENEW_SECONDS, workers.IDLE_SECONDS = 2.0, 0.5, 0.05
    order_runner.OTHER_SECONDS = 0.1
    site = load_site(folder / "site.toml", environ=os.environ)
    home, database = sys.argv[2:] or ("home", None)
    context = service_context(
        folder / home, database=database and open_database(database), site=site, environ=os.environ, forges={}
    )
    OrderService(replace(context, site_file=folder / "site.toml"), program=DRIVER).workers.start()
    threading.Event().wait()


if __name__ == "__main__":
    main()
