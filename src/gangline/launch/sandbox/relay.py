"""Relay out of a sandbox without a network: a Unix socket in a folder, forwarded to one address only.

    python -m gangline.launch.sandbox.relay FOLDER HOST PORT PID START_TIME

runs outside the sandbox in its own session, listens at `FOLDER/SOCKET`, and ends with the process that it serves.
The data is not inspected: TLS and signatures are between the two ends.
"""

import asyncio
import os
import sys
from contextlib import suppress

from gangline.procfs import is_alive
from gangline.storage.s3.unix_socket import SOCKET

_LOOK_SECONDS = 1.0
_PIECE_BYTES = 1 << 18


def main(arguments: list[str]) -> None:
    """Serve the socket until the process ends; `arguments` are those of the module's command."""
    folder, host, port, pid, started = arguments
    os.chdir(folder)  # a path of a socket is short
    asyncio.run(_serve(host, int(port), pid=int(pid), started=int(started)))


async def _serve(host: str, port: int, *, pid: int, started: int) -> None:
    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            there, back = await asyncio.open_connection(host, port, limit=_PIECE_BYTES)
            async with asyncio.TaskGroup() as both:
                both.create_task(_pump(reader, back))
                both.create_task(_pump(there, writer))
        writer.close()

    with suppress(FileNotFoundError):
        os.unlink(SOCKET)  # noqa: PTH108  # relative, in the folder
    async with await asyncio.start_unix_server(relay, SOCKET, limit=_PIECE_BYTES):
        os.chmod(SOCKET, 0o666)  # noqa: PTH101, S103  # who sees the folder may speak
        while is_alive(pid, started):
            await asyncio.sleep(_LOOK_SECONDS)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy until one side ends, and end the other."""
    try:
        with suppress(OSError):
            while data := await reader.read(_PIECE_BYTES):
                writer.write(data)
                await writer.drain()
            writer.write_eof()
    except BaseException:
        writer.close()
        raise


if __name__ == "__main__":
    main(sys.argv[1:])
