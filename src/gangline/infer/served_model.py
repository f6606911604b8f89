"""kserve's `Model` on top of the queue: requests of the Open Inference Protocol become arrays, and back."""

import asyncio
from typing import TYPE_CHECKING, Any

from fastapi import HTTPException
from kserve import InferOutput, InferRequest, InferResponse, Model
from kserve.errors import InferenceError, InvalidInput

from gangline.infer.batch_queue import BatchQueue
from gangline.infer.handler import DATATYPES, ModelCallError, QueueFullError, RequestError
from gangline.train.model.published import TensorSpec

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
        wanted = {each.name for each in payload.request_outputs or ()}
        if unknown := wanted - outputs.keys():
            raise InvalidInput(f"wanted outputs of {', '.join(sorted(outputs))}, found {sorted(unknown)[:5]}")
        return InferResponse(
            response_id=payload.id or "",
            model_name=self.name,
            model_version=str(version),
            infer_outputs=[
                _output(name, each) for name, each in sorted(outputs.items()) if not wanted or name in wanted
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
        {"name": name, "datatype": DATATYPES[each.dtype], "shape": list(each.shape)}
        for name, each in sorted(specs.items())
    ]
