"""A service process that takes deliveries in, to be killed: `python intake_service.py FOLDER DATABASE PORT`.

The whole application behind the server and with the limits that ship.
"""

import sys
from pathlib import Path

from tests.serve.hook_service import service_context

from gangline.cli.log_setup import set_up_logs
from gangline.serve.app import create_app
from gangline.serve.database.open import open_database
from gangline.serve.server import bind, serve_until_signal


def main():
    set_up_logs({})
    folder, url, port = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    database = open_database(url)
    app = create_app(service_context(folder, database=database))
    try:
        with bind(f"127.0.0.1:{port}") as bound:
            serve_until_signal(app, bound, stopping=app.state.service.close)
    finally:
        database.close()


if __name__ == "__main__":
    main()
