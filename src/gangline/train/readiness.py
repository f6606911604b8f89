"""The port that says a node is ready: listened on exactly while all its ranks have joined. It carries no words."""

import socket


class Readiness:
    def __init__(self, port: int | None) -> None:
        """`port` None: nobody asks."""
        self._port = port
        self._listener: socket.socket | None = None
        self.problem = ""
        """Why it cannot be listened on; the training goes on without."""

    def set(self, ready: bool) -> None:
        if ready and self._listener is None and self._port is not None:
            self._listen(self._port)
        elif not ready and self._listener is not None:
            self._listener.close()
            self._listener = None

    def pump(self) -> None:
        """Take and drop who asked, so that no queue fills; never waits."""
        while self._listener is not None:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            connection.close()

    def handles(self) -> list[int]:
        return [self._listener.fileno()] if self._listener is not None else []

    def _listen(self, port: int) -> None:
        try:
            self._listener = socket.create_server(("", port), backlog=64)
        except OSError as error:
            self.problem = f"port {port}: {error.strerror}"
            return
        self.problem = ""
        self._listener.setblocking(False)
