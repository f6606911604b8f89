"""KServe's server with one model: started on one address, ready after the golden answer, swapped, drained.

kserve's `Model` is on top of the queue: requests of the Open Inference Protocol become arrays, and back.
"""

import asyncio
import json
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import grpc
import structlog
import uvicorn
from fastapi import HTTPException
from kserve import InferOutput, InferRequest, InferResponse, Model, ModelServer
from kserve import model_server as kserve_server
from kserve.errors import InferenceError, InvalidInput
from kserve.protocol.grpc import grpc_predict_v2_pb2_grpc
from kserve.protocol.grpc.interceptors import ExceptionToStatusInterceptor
from kserve.protocol.grpc.servicer import InferenceServicer
from kserve.protocol.rest.server import RESTServer
from prometheus_client import REGISTRY

from gangline.errors import ConfigError, GanglineError
from gangline.infer.batch_queue import BatchQueue
from gangline.infer.handler import DATATYPES, ModelCallError, QueueFullError, RequestError
from gangline.infer.limits import Limits, LimitsMiddleware, is_allowed
from gangline.metrics.exposition import SeriesCollector
from gangline.metrics.series_store import SeriesStore
from gangline.train.model.published import PublishedModel, TensorSpec, check_golden, open_published

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy import ndarray


class ServedModel(Model):  # type: ignore[misc]  # kserve has no types
    """The one model of the server; which version answers is the queue's."""

    def __init__(self, name: str, queue: BatchQueue) -> None:
        super().__init__(name)
        self.queue = queue
        self.ready = True

    def get_input_types(self) -> list[dict[str, Any]]:
        """Inputs, as `/v2/models/NAME` shows them."""
        return _described(self.queue.model.inputs)

    def get_output_types(self) -> list[dict[str, Any]]:
        """Outputs, as `/v2/models/NAME` shows them."""
        return _described(self.queue.model.outputs)

    async def predict(self, payload: Any, headers: Any = None, response_headers: Any = None) -> InferResponse:
        """Answer one request; the caller waits while others are answered."""
        del headers, response_headers
        if not isinstance(payload, InferRequest):
            raise InvalidInput("wanted a request of the Open Inference Protocol v2: POST /v2/models/NAME/infer")
        try:
            version, outputs = await asyncio.wrap_future(self.queue.submit(_arrays(payload)))
        except RequestError as error:
            raise InvalidInput(str(error)) from error
        except QueueFullError as error:
            raise HTTPException(429, str(error), {"Retry-After": "1"}) from error
        except ModelCallError as error:
            raise InferenceError(str(error)) from error
        wanted = {output.name for output in payload.request_outputs or ()}
        if unknown := wanted - outputs.keys():
            raise InvalidInput(f"wanted outputs of {', '.join(sorted(outputs))}, found {sorted(unknown)[:5]}")
        return InferResponse(
            response_id=payload.id or "",
            model_name=self.name,
            model_version=str(version),
            infer_outputs=[
                _output(name, array) for name, array in sorted(outputs.items()) if not wanted or name in wanted
            ],
            use_binary_outputs=payload.use_binary_outputs,
            requested_outputs=payload.request_outputs,
        )


def _arrays(request: InferRequest) -> "dict[str, ndarray]":
    found = {}
    for each in request.inputs:
        if each.datatype not in DATATYPES.values():
            raise RequestError(
                f"input {each.name}: wanted one of {', '.join(DATATYPES.values())}, found {each.datatype}"
            )
        try:
            found[each.name] = each.as_numpy()
        except (ValueError, TypeError, OverflowError) as error:
            raise RequestError(f"input {each.name}: its data has not shape {each.shape} of {each.datatype}") from error
    if len(found) != len(request.inputs):
        raise RequestError("an input occurs twice")
    return found


def _output(name: str, array: "ndarray") -> InferOutput:
    found = InferOutput(name, list(array.shape), DATATYPES[str(array.dtype)])
    found.set_data_from_numpy(array, binary_data=True)
    return found


def _described(specs: "Mapping[str, TensorSpec]") -> list[dict[str, Any]]:
    return [
        {"name": name, "datatype": DATATYPES[spec.dtype], "shape": list(spec.shape)}
        for name, spec in sorted(specs.items())
    ]


log = structlog.get_logger()
GRACE_SECONDS = 30
"""Time for answers after SIGTERM, as `terminationGracePeriodSeconds` of a pod."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerOptions:
    """What the process was started with."""

    folder: Path
    code: Path | None
    name: str
    version: int
    host: str = "127.0.0.1"
    port: int = 8080
    """0: one that is free."""
    grpc_port: int | None = None
    """None: REST alone."""
    handler: str | None = None
    batch: int = 1
    wait_ms: float = 2.0
    queue: int = 64
    limits: Limits


def serve(options: ServerOptions, *, reports: IO[str], orders: IO[str] | None) -> None:
    """Answer requests until SIGTERM, or until `orders` ends.

    Args:
        options: Of the process.
        reports: Receives one JSON object a line: `ready`, `swapped`, `refused`.
        orders: Lines of the parent, `{"swap": {"folder": ..., "code": ..., "version": ...}}`; None: no parent.

    Raises:
        GanglineError: The model cannot be opened, or answers its golden sample otherwise.
    """
    model, sentence = open_and_check(options.folder, options.code, options.handler)
    queue = BatchQueue(
        model, options.version, batch=options.batch, wait_seconds=options.wait_ms / 1000, queue=options.queue
    )
    del model
    asyncio.run(_Server(options, queue, reports, orders).run(sentence))
    queue.drain()


def open_and_check(folder: Path, code: Path | None, handler: str | None) -> tuple[PublishedModel, str]:
    """A model that answered its golden sample, and a sentence on that."""
    model = open_published(folder, code, handler)
    return model, check_golden(model)


class _Server:
    """One run of the server, in its event loop."""

    def __init__(self, options: ServerOptions, queue: BatchQueue, reports: IO[str], orders: IO[str] | None) -> None:
        self._options, self._queue, self._reports, self._orders = options, queue, reports, orders
        self._last_code = options.code
        limits = replace(options.limits, most_requests=options.queue + options.batch)
        kserve = ModelServer(http_port=options.port, enable_grpc=False, enable_latency_logging=False)
        kserve.register_model(ServedModel(options.name, queue))
        self._kserve = kserve
        app = kserve_server.app
        rest = RESTServer("kserve.model_server:app", kserve.dataplane, kserve.model_repository_extension, options.port)
        rest.create_application()
        config = uvicorn.Config(
            app, host=options.host, port=options.port, log_config=None, access_log=False, lifespan="off",
            timeout_graceful_shutdown=GRACE_SECONDS, timeout_keep_alive=30,
        )  # fmt: skip
        self._uvicorn = server = uvicorn.Server(config)
        app.add_middleware(
            LimitsMiddleware, limits=limits, counts=queue.counts, is_draining=lambda: server.should_exit
        )  # asked for at the first request
        REGISTRY.register(_QueueCollector(options.name, queue))

    async def run(self, sentence: str) -> None:
        """Serve; returns once every answer was sent."""
        listener = _listen(self._options.host, self._options.port)
        serving = asyncio.create_task(self._uvicorn.serve(sockets=[listener]))
        while not self._uvicorn.started and not serving.done():
            await asyncio.sleep(0.01)
        rpc = await self._start_grpc()
        host = f"[{self._options.host}]" if ":" in self._options.host else self._options.host
        self._report(
            ready=f"http://{host}:{listener.getsockname()[1]}", version=self._queue.version, golden=sentence,
            batch=self._options.batch, queue=self._options.queue,
        )  # fmt: skip
        if self._orders is not None:
            loop = asyncio.get_running_loop()
            threading.Thread(target=self._obey, args=(self._orders, loop), daemon=True, name="orders").start()
        await serving
        if rpc is not None:
            await rpc.stop(GRACE_SECONDS)

    async def _start_grpc(self) -> Any:
        """kserve's gRPC service on the same host; None: not asked for."""
        if self._options.grpc_port is None:
            return None
        most = self._options.limits.max_request_bytes
        server = grpc.aio.server(
            interceptors=(_TokenInterceptor(self._options.limits.token), ExceptionToStatusInterceptor()),
            options=[("grpc.max_receive_message_length", most)],
            maximum_concurrent_rpcs=self._options.queue + self._options.batch,
        )
        servicer = InferenceServicer(self._kserve.dataplane, self._kserve.model_repository_extension)
        grpc_predict_v2_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(servicer, server)
        server.add_insecure_port(f"{self._options.host}:{self._options.grpc_port}")
        await server.start()
        return server

    def _obey(self, orders: IO[str], loop: asyncio.AbstractEventLoop) -> None:
        """Carry out what the parent asks for, one after the other; its end is the server's."""
        for line in orders:
            order = json.loads(line).get("swap")
            if order is not None:
                self._swap(order)
        loop.call_soon_threadsafe(setattr, self._uvicorn, "should_exit", True)

    def _swap(self, order: dict[str, Any]) -> None:
        """Open another version while the first answers, then let it answer."""
        folder, code, version = Path(order["folder"]), order.get("code"), int(order["version"])
        forget_code(self._last_code)
        self._last_code = Path(code) if code else None  # also of a version that is refused: its modules are imported
        try:
            model, sentence = open_and_check(folder, self._last_code, self._options.handler)
        except (GanglineError, SystemExit) as error:
            self._report(refused=version, error=str(error)[:500])
            return
        self._queue.swap(model, version)
        self._report(swapped=version, golden=sentence)

    def _report(self, **words: Any) -> None:
        self._reports.write(json.dumps(words) + "\n")
        self._reports.flush()


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        sock = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {host}:{port}: {error.strerror}; another [infer] port in site.toml, or --port, works"
        ) from error
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # asyncio does so for sockets that it made itself
    return sock


def forget_code(code: Path | None) -> None:
    """Forget modules that were imported from `code`, so that another version imports its own of the same names."""
    if code is None:
        return
    top = str(code.resolve())
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(top + os.sep):
            del sys.modules[name]
    sys.path[:] = [each for each in sys.path if each != top and not each.startswith(top + os.sep)]


class _QueueCollector:
    """Series of the queue, read at each scrape."""

    def __init__(self, model: str, queue: BatchQueue) -> None:
        self._model, self._queue = model, queue

    def collect(self) -> Iterator[Any]:
        book, counts = SeriesStore(), self._queue.counts
        for name, value in (
            ("infer_queue", counts.waiting), ("infer_batch_samples", counts.last_samples),
            ("infer_version", self._queue.version), ("infer_refused_total", counts.refused),
            ("infer_answered_total", counts.answered), ("infer_failed_total", counts.failed),
        ):  # fmt: skip
            book.set(name, float(value), model=self._model)
        yield from SeriesCollector(book).collect()

    def describe(self) -> tuple[()]:
        """Nothing: so the registry does not collect in order to know names."""
        return ()


class _TokenInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpc has no types
    """Refuses calls without the token, and those that would unload the model."""

    def __init__(self, token: str | None) -> None:
        self._token = token

    async def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        """Let a call through, or end it."""
        given = str(dict(details.invocation_metadata).get("authorization", "")).encode()
        unloads = details.method.endswith(("/RepositoryModelLoad", "/RepositoryModelUnload"))
        if is_allowed(self._token, given) and not unloads:
            return await continuation(details)

        async def refuse(_: Any, context: Any) -> None:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "wanted the metadata authorization: Bearer TOKEN")

        return grpc.unary_unary_rpc_method_handler(refuse)
