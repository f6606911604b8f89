"""An embedding whose words are shared out: each peer looks up those it holds, the sum of all has each word once.

torch's own style keeps the weights in parts as well, but gives every peer the gradient of the whole vocabulary.
"""

from functools import partial
from typing import cast

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel.style import ParallelStyle
from torch.nn.functional import embedding

from gangline.errors import ConfigError


class EmbedParallel(ParallelStyle):
    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        table = cast(nn.Embedding, module)
        if table.max_norm is not None or table.scale_grad_by_freq or table.sparse or table.padding_idx is not None:
            raise ConfigError(
                f"hints.tensor: embed is for a plain Embedding, found {table}; leave out its word, or its options"
            )
        part = distribute_tensor(table.weight, device_mesh, [Shard(0)], src_data_rank=self.src_data_rank)
        table.weight = nn.Parameter(part, requires_grad=table.weight.requires_grad)
        table.forward = partial(_look_up, table, device_mesh)  # type: ignore[method-assign]  # what a style is for
        return table


def _look_up(table: nn.Embedding, mesh: DeviceMesh, words: Tensor) -> Tensor:
    """Vectors of all `words`, alike on all peers; collective."""
    part = cast(DTensor, table.weight).to_local(grad_placements=[Shard(0)])
    own = words - mesh.get_local_rank() * len(part)
    is_here = (own >= 0) & (own < len(part))
    found = embedding(own.where(is_here, 0), part) * is_here.unsqueeze(-1)
    return (
        DTensor.from_local(found, mesh, [Partial()], run_check=False).redistribute(placements=[Replicate()]).to_local()
    )
