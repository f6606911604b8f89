"""Entry point of a listener: `python -m gangline.fabric.probe --port 4719 --secret-file /run/secrets/probe`."""

import argparse
import os
import sys
import threading
from pathlib import Path

from gangline.errors import GanglineError
from gangline.fabric.probe.listener import PORT, Listener, read_secret


def main() -> int:
    """Listen until the time is over or the process is stopped."""
    parser = argparse.ArgumentParser(prog="python -m gangline.fabric.probe", description="Answer and send probes.")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on; 0.0.0.0 for all")
    parser.add_argument("--port", type=int, default=PORT)
    parser.add_argument("--secret-file", type=Path, help="file with the secret, the same on every server")
    parser.add_argument("--seconds", type=float, help="end after as long")
    options = parser.parse_args()
    try:
        listener = Listener(host=options.host, port=options.port, secret=read_secret(options.secret_file))
    except GanglineError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    sys.stdout.write(f"listening on {listener.address[0]}:{listener.address[1]}, process {os.getpid()}\n")
    sys.stdout.flush()
    threading.Event().wait(options.seconds)
    listener.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
