"""Sandbox for model code on this machine: it sees only the keys, credentials and files that it is given.

    find_engine(mode, wide=)       the engine that works on this machine, tried once per process
    Sandbox                        an engine, the trust in the commit, and what is hidden and shown
    module_runner.ModuleRunner     runs one module; `process_runner.ProcessRunner` does so on this machine

Everything that a task or program imports is model code, and is started through `Sandbox.command` only. Own commits get
the wide view: the file system of the machine, read-only, without homes and secrets. Commits of forks get the closed
view: the system, the Python environment, and the files of their own gang.
"""

from gangline.launch.sandbox.engines import SandboxEngine, find_engine
from gangline.launch.sandbox.policy import Sandbox
from gangline.launch.sandbox.view import SandboxView

__all__ = ["Sandbox", "SandboxEngine", "SandboxView", "find_engine"]
