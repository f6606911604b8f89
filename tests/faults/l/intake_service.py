"""A service process that takes deliveries in, to be killed: `python intake_service.py FOLDER DATABASE PORT`."""

import sys
from pathlib import Path

import uvicorn
from tests.serve.hook_service import desk_at, hooks_app

from gangline.cli.logs import set_up_logs
from gangline.serve.database.open import open_database


def main():
    set_up_logs({})
    folder, url, port = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    database = open_database(url)
    app = hooks_app(desk_at(folder, database=database))
    try:
        uvicorn.run(app, host="127.0.0.1", port=port, log_config=None, access_log=False, lifespan="off")
    finally:
        database.close()


if __name__ == "__main__":
    main()
