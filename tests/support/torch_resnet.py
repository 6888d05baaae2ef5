"""PyTorch's ResNets for CIFAR, as public programs lay them out: conv1, bn1, blocks, linear."""

import torch
from torch import nn

from bppsa_cupy.tools.torch_modules import PadShortcut as Padded


class BasicBlock(nn.Module):
    def __init__(self, before, channels, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(before, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.shortcut = Padded(channels, stride) if stride > 1 else nn.Identity()

    def forward(self, x):
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
        blocks, before = [], 16
        for channels in (16, 32, 64):
            for _ in range((depth - 2) // 6):
                blocks.append(BasicBlock(before, channels, 1 if before == channels else 2))
                before = channels
        self.blocks, self.linear = nn.Sequential(*blocks), nn.Linear(64, 10)

    def forward(self, x):
        y = self.blocks(torch.relu(self.bn1(self.conv1(x))))
        return self.linear(y.mean((2, 3)))
