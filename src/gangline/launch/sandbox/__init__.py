"""What model code may see and do on this machine: no key, credential or file but those that it is given.

    find_engine(mode, wide=) -> Engine      what this machine allows, tried once a process
    Sandbox                                 an engine, whose commit the code is of, what is hidden, what is shown
    runner.Runner                           runs one module once; `once.LocalRunner` on this machine

Whatever a task or program imports is model code. It runs by `Sandbox.command` alone. An own commit has the wide view:
the file system of the machine, read-only, without homes and secrets. A fork's has the closed one: the system, the
Python environment, and what belongs to its own gang.
"""

from gangline.launch.sandbox.engine_detection import find_engine
from gangline.launch.sandbox.engines import SandboxEngine
from gangline.launch.sandbox.policy import Sandbox
from gangline.launch.sandbox.view import SandboxView

__all__ = ["Sandbox", "SandboxEngine", "SandboxView", "find_engine"]
