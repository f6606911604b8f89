"""`python -m tests.cluster.rig up|down|env|site|status`: the project's own one-node cluster on this machine."""

import argparse
import sys
import time

from tests.cluster.rig import answers, env, places
from tests.cluster.rig.down import down
from tests.cluster.rig.site import make_site
from tests.cluster.rig.trouble import Trouble
from tests.cluster.rig.up import is_running, up

_NO_CLUSTER = 3


def main(arguments: list[str]) -> int:
    """Exit code: 0, or 3 with the reason on stderr."""
    asked = _parser().parse_args(arguments)
    try:
        return {"up": _up, "down": _down, "env": _env, "site": _site, "status": _status}[asked.command](asked)
    except Trouble as trouble:
        sys.stderr.write(f"cluster  {trouble}\n")
        return _NO_CLUSTER


def _up(asked: argparse.Namespace) -> int:
    began = time.monotonic()
    up(train=asked.train, operators=asked.operators)
    print(f"cluster  up after {time.monotonic() - began:.1f} s: KUBECONFIG={places.kubeconfig()}")
    return 0


def _down(asked: argparse.Namespace) -> int:
    began = time.monotonic()
    down(purge=asked.purge)
    print(f"cluster  down after {time.monotonic() - began:.1f} s")
    return 0


def _env(_asked: argparse.Namespace) -> int:
    print(env.shell())
    return 0


def _site(asked: argparse.Namespace) -> int:
    print(make_site(asked.namespace), end="")
    return 0


def _status(_asked: argparse.Namespace) -> int:
    if not is_running():
        print("cluster  down")
        return _NO_CLUSTER
    print(f"cluster  up, API server {'ready' if answers.ready() else 'not ready'}: KUBECONFIG={places.kubeconfig()}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.rig", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    starts = commands.add_parser("up", help="build what is missing, start, wait until pods can run")
    starts.add_argument("--train", action="store_true", help="bring the image with torch, too (3 GB, once)")
    starts.add_argument("--operators", action="store_true", help="build Kueue, JobSet and Trainer, too, for the suites")
    ends = commands.add_parser("down", help="end it; put back what it changed")
    ends.add_argument("--purge", action="store_true", help="forget imported images and keys")
    commands.add_parser("env", help="print shell lines: KUBECONFIG, PATH and the variables of the tests")
    site = commands.add_parser("site", help="make a namespace for gangs; print a site.toml for lines that run there")
    site.add_argument("namespace")
    commands.add_parser("status", help="code 0 when it runs, 3 when not")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
