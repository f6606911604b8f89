"""Digits drawn by code: seven-segment figures, shifted and blurred by noise; a small network tells them apart."""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from gangline.train import Loss

SIDE = 12
SEGMENTS = ("abcdef", "bc", "abged", "abgcd", "fgbc", "afgcd", "afgecd", "abc", "abcdefg", "abcdfg")
"""Lit segments of the digits 0 to 9: a on top, then clockwise, g in the middle."""
PLACES = {
    "a": (slice(0, 1), slice(0, 5)), "b": (slice(0, 5), slice(4, 5)), "c": (slice(4, 9), slice(4, 5)),
    "d": (slice(8, 9), slice(0, 5)), "e": (slice(4, 9), slice(0, 1)), "f": (slice(0, 5), slice(0, 1)),
    "g": (slice(4, 5), slice(0, 5)),
}  # fmt: skip


class DrawnDigits:
    """`size` pictures; number `i` is a function of (seed, i) alone, so any rank draws the same one."""

    def __init__(self, size: int, *, seed: int, noise: float) -> None:
        self.size, self.seed, self.noise = size, seed, noise

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + index)
        digit, down, right = (int(torch.randint(n, (), generator=generator)) for n in (10, SIDE - 8, SIDE - 4))
        picture = torch.zeros(SIDE, SIDE)
        for segment in SEGMENTS[digit]:
            rows, columns = PLACES[segment]
            picture[down : down + 9, right : right + 5][rows, columns] = 1.0
        picture += self.noise * torch.randn(SIDE, SIDE, generator=generator)
        return {"pictures": picture, "digits": torch.tensor(digit)}


class Classifier(nn.Module):
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, width // 2, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(width // 2, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        )  # fmt: skip
        self.head = nn.Linear(width * (SIDE // 4) ** 2, 10)

    def forward(self, pictures: Tensor) -> Tensor:
        return self.head(self.features(pictures.unsqueeze(1)).flatten(1))


class Digits:
    metric_units = {"accuracy": "ratio"} | {f"recall_{digit}": "ratio" for digit in range(10)}

    def build_model(self, options):
        return Classifier(width=options.get("width", 64))

    def build_data(self, split, options):
        noise = options["model"].get("noise", 0.3)
        if split == "train":
            return DrawnDigits(8192, seed=1, noise=noise)
        return DrawnDigits(1024, seed=2, noise=noise)

    def loss(self, outputs, batch):
        digits = batch["digits"]
        return Loss(total=cross_entropy(outputs, digits, reduction="sum"), weight=len(digits))

    def evaluate(self, model, batch):
        """The diagonal of the confusion matrix: how often each digit is found, beside the accuracy over all."""
        digits = batch["digits"]
        right = model(batch["pictures"]).argmax(dim=1) == digits
        metrics = {"accuracy": (right.sum(), len(digits))}
        for digit in range(10):
            metrics[f"recall_{digit}"] = (right[digits == digit].sum(), (digits == digit).sum())
        return metrics
