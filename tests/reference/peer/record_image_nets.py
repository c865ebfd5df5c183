# SPDX-License-Identifier: Apache-2.0
"""What PyTorch gives in float64 for a small residual and a small mobile network with random weights, by the names of
models/image_nets.cpp: tests/reference/image_nets_peer_test.cpp reads it.
record.sh calls it."""
import os
import sys

import torch
from safetensors.torch import save_file
from torch.nn import functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../benchmarks/peers"))
from torch_image_nets import ImageNet  # noqa: E402

SIZES = {"resnet": {"classes": 5, "width": 4, "blocks": [1, 2]},
         "mobile_net": {"classes": 5, "first": 8, "last": 16, "stages": [[1, 8, 1, 1], [6, 8, 2, 2]]}}
RENAMED = {"0.weight": "weight", "1.weight": "norm/gamma", "1.bias": "norm/beta", "1.running_mean": "norm/running_mean",
           "1.running_var": "norm/running_variance", "weight": "weight", "bias": "bias"}


def ours(name):
    layer, _, what = name.removeprefix("blocks.").partition(".")
    while what not in RENAMED:
        part, _, what = what.partition(".")
        layer += "/" + part
    return f"{layer}/{RENAMED[what]}"


def as_ours(name, value):
    return (value.t() if name == "dense.weight" else value).detach().clone().contiguous()


torch.manual_seed(3)
torch.set_default_dtype(torch.float64)
kept = {}
for net, sizes in SIZES.items():
    model = ImageNet(sizes)
    for name, value in [*model.named_parameters(), *model.named_buffers()]:
        if "running_var" in name or "1.weight" in name:
            value.data.uniform_(0.5, 1.5)
        elif "running_mean" in name or "1.bias" in name:
            value.data.normal_(0, 0.2)
    state = {name: value for name, value in model.state_dict().items() if "num_batches" not in name}
    for name, value in state.items():
        kept[f"{net}/start/{ours(name)}"] = as_ours(name, value)
    x, labels = torch.randn(3, 3, 33, 40), torch.tensor([4, 0, 2])
    kept[f"{net}/x"], kept[f"{net}/labels"] = x, labels
    kept[f"{net}/scores"] = model.eval()(x).detach()
    loss = F.cross_entropy(model.train()(x), labels)
    loss.backward()
    kept[f"{net}/loss"] = loss.detach()
    for name, value in model.named_parameters():
        kept[f"{net}/gradient/{ours(name)}"] = as_ours(name, value.grad)
    for name, value in model.named_buffers():
        if "running" in name:
            kept[f"{net}/after/{ours(name)}"] = as_ours(name, value)
save_file(kept, sys.argv[1], metadata={"made by": "record_image_nets.py", "torch": torch.__version__})
print(len(kept), "tensors")
