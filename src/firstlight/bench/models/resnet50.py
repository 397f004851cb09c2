"""ResNet-50 as published, with the stride of a stage in its 3 x 3 convolution ("v1.5") and random weights."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from firstlight.bench.model_counts import RESNET50_STAGES

CLASSES = 1000
EXPANSION = 4
# Every block adds its branch to what came in. With a branch of unit variance the sixteen blocks would grow the variance
# by 2**16, near the end of fp16; at a quarter of the amplitude it grows by less than 3.
BRANCH_SCALE = 0.25


class Bottleneck(nn.Module):
    """1 x 1 down, 3 x 3, 1 x 1 up, added to the input (through a 1 x 1 where shapes differ)."""

    def __init__(self, inputs: int, width: int, *, stride: int) -> None:
        super().__init__()
        outputs = EXPANSION * width
        self.reduce = nn.Conv2d(inputs, width, 1, bias=False)
        self.reduce_norm = nn.BatchNorm2d(width)
        self.spatial = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.spatial_norm = nn.BatchNorm2d(width)
        self.expand = nn.Conv2d(width, outputs, 1, bias=False)
        self.expand_norm = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        branch = self.relu(self.reduce_norm(self.reduce(x)))
        branch = self.relu(self.spatial_norm(self.spatial(branch)))
        branch = self.expand_norm(self.expand(branch))
        return self.relu(branch + self.shortcut(x))  # type: ignore[no-any-return]


class ResNet50(nn.Module):
    """Stem, four stages of bottlenecks, mean over the image, one linear layer: 25.557 M parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.stem_norm = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        blocks: list[nn.Module] = []
        inputs = 64
        for stage, (width, count, _) in enumerate(RESNET50_STAGES):
            for block in range(count):
                blocks.append(Bottleneck(inputs, width, stride=2 if stage and not block else 1))
                inputs = EXPANSION * width
        self.blocks = nn.Sequential(*blocks)
        self.mean = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(inputs, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        x = self.pool(self.relu(self.stem_norm(self.stem(images))))
        return self.head(self.mean(self.blocks(x)).flatten(1))  # type: ignore[no-any-return]


def build(*, dtype: torch.dtype, device: str, random: torch.Generator) -> ResNet50:
    """A model for inference, channels_last, with weights drawn on the device."""
    with torch.device("meta"):
        model = ResNet50()
    model = model.to(dtype).to_empty(device=device)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                fan_in = module.weight[0].numel()
                gain = 2.0 if isinstance(module, nn.Conv2d) else 1.0  # half of it is lost in each relu
                module.weight.normal_(0, (gain / fan_in) ** 0.5, generator=random)
                if module.bias is not None:
                    module.bias.normal_(0, 0.1, generator=random)
            elif isinstance(module, nn.BatchNorm2d):
                _draw_norm(module, random)
        for module in model.modules():
            if isinstance(module, Bottleneck):
                module.expand_norm.weight.mul_(BRANCH_SCALE)
    model.eval().requires_grad_(requires_grad=False)
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            module.weight.data = module.weight.data.contiguous(memory_format=torch.channels_last)
    return model


def _draw_norm(norm: nn.BatchNorm2d, random: torch.Generator) -> None:
    """Statistics near those of trained layers, none of them exactly 0 or 1, so that leaving one out is seen."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert norm.num_batches_tracked is not None
    norm.weight.normal_(1, 0.1, generator=random)
    norm.bias.normal_(0, 0.1, generator=random)
    norm.running_mean.normal_(0, 0.1, generator=random)
    norm.running_var.normal_(1, 0.1, generator=random).abs_().add_(0.1)
    norm.num_batches_tracked.zero_()
