"""Muon in a plain FSDP2 loop, without the rest of gangline: torchrun --nproc-per-node 2 train_fsdp2.py

Every hidden matrix is updated once, on a rank that the plan chose; embedding, head, norms and biases are AdamW's.
"""

import os

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy

from gangline.optim.matrix_optimizer import MatrixOptimizer
from gangline.optim.plan.explain import explain
from gangline.optim.plan.routing import Route
from gangline.optim.routing import partition_params
from gangline.optim.rules.muon import Muon

WORDS, WIDTH, LENGTH = 64, 64, 32


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, nhead=4, dim_feedforward=256, dropout=0.0, batch_first=True)
        self.embed, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS)
        self.body = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)

    def forward(self, words: Tensor) -> Tensor:
        causal = nn.Transformer.generate_square_subsequent_mask(words.shape[1], device=words.device)
        return self.head(self.body(self.embed(words), mask=causal, is_causal=True))


device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else torch.device("cpu")
dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
torch.manual_seed(0)  # the same first weights on all ranks
model = Counter().to(device)
for block in model.body.layers:
    fully_shard(block)
fully_shard(model)

fused = Route(match="*.in_proj_weight", split="qkv", heads=4, kv_heads=4, head_dim=16)  # three matrices each
groups = partition_params(model, routes=[fused])
optimizer = MatrixOptimizer(groups, rule=Muon(lr=0.02), elementwise=lambda rest: torch.optim.AdamW(rest, lr=3e-3))
if dist.get_rank() == 0:
    print(explain(optimizer.plans[0]))
for step in range(40):
    torch.manual_seed(1000 * step + dist.get_rank())  # each rank has its own samples: counting on from any word
    words = (torch.randint(WORDS, (8, 1)) + torch.arange(LENGTH + 1)).remainder(WORDS).to(device)
    loss = cross_entropy(model(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if dist.get_rank() == 0 and step % 10 == 9:
        print(f"step {step + 1}: loss {loss.item():.3f}")
dist.destroy_process_group()
