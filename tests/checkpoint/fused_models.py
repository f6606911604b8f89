"""One small model in two forms, fused and split, with the same bits in its weights and gradients; in any layout."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from gangline.checkpoint.loader import load
from gangline.checkpoint.saver import Saver
from gangline.optim.matrix_optimizer import MatrixOptimizer
from gangline.optim.plan.matrix import FragmentSplit, fragments
from gangline.optim.plan.optimizer_plan import PlanOptions
from gangline.optim.plan.routing import Route, split_of
from gangline.optim.routing import partition_params
from gangline.optim.rules.muon import Muon
from gangline.optim.rules.shampoo import Shampoo
from gangline.optim.rules.soap import Soap
from gangline.spec.plan import FusedParameter
from gangline.storage.folder.store import FolderStore

KEY, PREFIX = b"fused", "runs/p/c/r/checkpoints"
HEADS = {"heads": 4, "kv_heads": 2, "head_dim": 2}
FUSED = (
    FusedParameter(
        match="layers.*.wqkv.*", parts=tuple(f"layers.*.{each}.*" for each in ("wq", "wk", "wv")),
        split="qkv_by_group", **HEADS,
    ),
    FusedParameter(
        match="layers.*.fc1.weight", parts=("layers.*.gate.weight", "layers.*.up.weight"), split="gate_up_interleaved"
    ),
    FusedParameter(match="layers.*.experts", parts=("layers.*.expert_{}.weight",), split="stack"),
)  # fmt: skip
ROUTES = (
    Route(match="layers.*.wqkv.weight", split="qkv_by_group", **HEADS),
    Route(match="layers.*.fc1.weight", split="gate_up_interleaved"),
    Route(match="layers.*.experts", split="stack"),
)
MATRIX_RULES = {
    "muon": lambda: Muon(dtype="float32"),
    "shampoo": lambda: Shampoo(refresh_every=2),
    "soap": lambda: Soap(refresh_every=2),
    "none": None,
}
SHAPES = {"wqkv.weight": (16, 6), "wqkv.bias": (16,), "fc1.weight": (10, 6), "experts": (3, 4, 6), "out.weight": (6, 7)}
_SPLITS = {route.match.rpartition("layers.*.")[2]: split_of(route) for route in ROUTES}
_SPLITS["wqkv.bias"] = _SPLITS["wqkv.weight"]


def tensors(step):
    """Of every parameter of the fused model: weights for step 0, then gradients."""
    torch.manual_seed(step)
    return {f"layers.{layer}.{name}": torch.randn(shape) for layer in range(2) for name, shape in SHAPES.items()}


def in_parts(fused):
    """Tensors of the split model, by the split rules of the optimizer."""
    found = {}
    for name, tensor in fused.items():
        own = name.split(".", 2)[2]
        split = _SPLITS.get(own, FragmentSplit())
        if split.kind == "none":
            found[name] = tensor
        elif split.kind == "stack":
            found |= {name.replace("experts", f"expert_{at}.weight"): each for at, each in enumerate(tensor)}
        else:
            for each in fragments(name, (tensor.shape[0], 1), split):
                part = name.replace("wqkv", f"w{each.fragment}").replace("fc1", each.fragment)
                found[part] = torch.cat([tensor[start:stop] for start, stop in each.rows])
    return found


class Form(nn.Module):
    """Modules that have what the names say."""

    def __init__(self, weights, layout):
        super().__init__()
        for name, weight in weights.items():
            *path, last = name.split(".")
            module = self
            for part in path:
                module = module._modules.setdefault(part, nn.Module())
            module.register_parameter(last, nn.Parameter(placed(weight, layout)))


def placed(tensor, layout):
    """By `rows` or `columns` over all ranks, or whole; of `stages` each rank has a layer of its own."""
    if layout in ("whole", "stages"):
        return tensor.clone()
    dim = tensor.dim() - 1 if layout == "columns" else 0
    return distribute_tensor(tensor, init_device_mesh("cpu", (dist.get_world_size(),)), [Shard(dim)])


class Training:
    """A model in one form and layout, and its optimizer; ranks with whole parameters are copies."""

    def __init__(self, form, layout, rule, *, seed=0):
        self.form, self.layout = form, layout
        self.model = Form(self._in_form(tensors(seed)), layout)
        self.group = dist.group.WORLD if dist.is_initialized() else None
        made = MATRIX_RULES[rule]
        if made is None:
            self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.1)
            return
        groups = partition_params(self.model, routes=ROUTES if form == "fused" else ())
        self.optimizer = MatrixOptimizer(
            groups, rule=made(), replicas=self.group if layout == "whole" else None, options=PlanOptions()
        )

    def _in_form(self, fused):
        if self.layout == "stages":
            fused = {name: each for name, each in fused.items() if name.startswith(f"layers.{dist.get_rank()}.")}
        return fused if self.form == "fused" else in_parts(fused)

    def train(self, *steps):
        parameters = dict(self.model.named_parameters())
        for step in steps:
            for name, gradient in self._in_form(tensors(step)).items():
                parameters[name].grad = placed(gradient, self.layout)
            self.optimizer.step()

    def weights(self):
        """Whole ones, as the split model has them."""
        found = {
            name: each.full_tensor() if isinstance(each, DTensor) else each.clone()
            for name, each in self.model.state_dict().items()
        }
        return found if self.form == "split" else in_parts(found)

    def save(self, root, *, step):
        saver = Saver(
            store=FolderStore(root), prefix=PREFIX, run="r", plan_digest="d", generation=1, key=KEY, group=self.group
        )
        saver.save(self.model, self.optimizer, {}, step=step, wait=True)
        saver.close()

    def load(self, root, rules=FUSED):
        return load(FolderStore(root), PREFIX, self.model, self.optimizer, key=KEY, group=self.group, fused=rules)


def trained_on(root, form, layout, rule, save):
    """Three steps and a save, or a load of them; then three more, and the weights."""
    training = Training(form, layout, rule, seed=0 if save else 99)
    if save:
        training.train(1, 2, 3)
        training.save(root, step=3)
    else:
        training.load(root)
    training.train(4, 5, 6)
    return training.weights()
