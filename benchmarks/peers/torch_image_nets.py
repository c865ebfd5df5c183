# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of the networks for images: ResNet-50 and MobileNetV2, layer by layer as models/image_nets.cpp has
them."""
import torch
from torch import nn
from torch.nn import functional as F


def conv(inputs, outputs, kernel=1, stride=1, groups=1):
    return nn.Sequential(nn.Conv2d(inputs, outputs, kernel, stride, (kernel - 1) // 2, groups=groups, bias=False),
                         nn.BatchNorm2d(outputs))


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = 4 * width
        self.conv1, self.conv2, self.conv3 = conv(inputs, width), conv(width, width, 3, stride), conv(width, outputs)
        self.shortcut = None if stride == 1 and inputs == outputs else conv(inputs, outputs, 1, stride)

    def forward(self, x):
        y = self.conv3(F.relu(self.conv2(F.relu(self.conv1(x)))))
        return F.relu(y + (x if self.shortcut is None else self.shortcut(x)))


class InvertedBottleneck(nn.Module):
    def __init__(self, inputs, outputs, expansion, stride):
        super().__init__()
        inner = inputs * expansion
        self.expand = conv(inputs, inner) if expansion > 1 else None
        self.depthwise, self.project = conv(inner, inner, 3, stride, inner), conv(inner, outputs)
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x):
        y = x if self.expand is None else F.relu6(self.expand(x))
        y = self.project(F.relu6(self.depthwise(y)))
        return y + x if self.adds else y


class ImageNet(nn.Module):
    """Blocks are named by their place, stage1/block1 and so on, and all parameters as models/image_nets.cpp names them."""

    def __init__(self, s):
        super().__init__()
        self.is_mobile, self.blocks = "stages" in s, nn.ModuleDict()
        if self.is_mobile:
            self.stem, channels = conv(3, s["first"], 3, 2), s["first"]
            for i, (expansion, outputs, count, stride) in enumerate(s["stages"]):
                for j in range(count):
                    block = InvertedBottleneck(channels, outputs, expansion, stride if j == 0 else 1)
                    self.blocks[f"stage{i + 1}/block{j + 1}"], channels = block, outputs
            self.head, channels = conv(channels, s["last"]), s["last"]
        else:
            self.stem, channels = conv(3, s["width"], 7, 2), s["width"]
            for i, count in enumerate(s["blocks"]):
                width = s["width"] << i
                for j in range(count):
                    block = Bottleneck(channels, width, 2 if i > 0 and j == 0 else 1)
                    self.blocks[f"stage{i + 1}/block{j + 1}"], channels = block, 4 * width
        self.dense = nn.Linear(channels, s["classes"])

    def forward(self, x):
        x = F.relu6(self.stem(x)) if self.is_mobile else F.max_pool2d(F.relu(self.stem(x)), 3, 2, 1)
        for block in self.blocks.values():
            x = block(x)
        if self.is_mobile:
            x = F.relu6(self.head(x))
        return self.dense(x.mean((2, 3)))


def image_net(case, device):
    s, trains = case["sizes"], case["kind"].endswith("training")
    halves = case["dtype"] != "f32"

    def make(last, compiles):
        def build(_):
            torch.manual_seed(0)
            model, x = ImageNet(s).to(device), torch.randn(s["batch"], 3, s["size"], s["size"], device=device)
            labels = torch.randint(0, s["classes"], (s["batch"],), device=device)
            if last:
                model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
            model.train(trains)
            run = torch.compile(model, dynamic=False) if compiles else model
            if not trains:
                def forward():
                    with torch.no_grad(), torch.autocast(device, dtype=torch.bfloat16, enabled=halves):
                        return run(x)
                return forward
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, fused=True)

            def step():
                optimizer.zero_grad(set_to_none=True)
                with torch.autocast(device, dtype=torch.bfloat16, enabled=halves):
                    loss = F.cross_entropy(run(x), labels)
                loss.backward()
                optimizer.step()
            return step
        return build
    return [{"peer": "PyTorch, channels last", "make": make(True, False)},
            {"peer": "PyTorch compiled, channels last", "make": make(True, True)}]


WORKS = {f"{net}_{what}": image_net for net in ("resnet", "mobile_net") for what in ("training", "forward")}
