"""State dicts of pruned PyTorch models, whose modules have other names: in networks, and by --from."""

import numpy as np
import pytest
import torch
from marks import some_rows
from torch import nn
from torch.nn.utils import prune
from torch_resnet import ResNet

import bppsa_cupy as bp
from bppsa_cupy.models import build_model
from bppsa_cupy.plan import Plan
from bppsa_cupy.tools.plan import main


class Vgg(nn.Module):
    """As torchvision lays it out: features, avgpool, classifier. Configuration A for images of 32 by 32."""

    def __init__(self):
        super().__init__()
        modules, before = [], 3
        for channels in (64, "M", 128, "M", 256, 256, "M", 512, 512, "M", 512, 512, "M"):
            if channels == "M":
                modules.append(nn.MaxPool2d(2))
            else:
                modules += [nn.Conv2d(before, channels, 3, padding=1), nn.ReLU()]
                before = channels
        self.features, self.avgpool = nn.Sequential(*modules), nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(nn.Linear(512, 10))

    def forward(self, x):
        return self.classifier(torch.flatten(self.avgpool(self.features(x)), 1))


def pruned(make, how):
    torch.manual_seed(0)
    model = make().double()
    model(torch.randn(2, 3, 32, 32, dtype=torch.float64))  # running statistics
    for module in model.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            prune.l1_unstructured(module, "weight", 0.9)
            if how == "removed":
                prune.remove(module, "weight")
    return model.eval()


@pytest.mark.parametrize(("name", "make"), some_rows(("resnet20", lambda: ResNet(20)), long=[("vgg11", Vgg)]))
def test_pruned_models_load_by_order(name, make):
    net = build_model(name, dtype="float64", device="host").eval()
    x = torch.randn(1, 3, 32, 32, dtype=torch.float64)
    for how in ("removed", "pruned"):
        model = pruned(make, how)
        net.load_state_dict(model.state_dict(), by_order=True)
        weights = sum(isinstance(module, (nn.Conv2d, nn.Linear)) for module in model.modules())
        assert len(net.masks) == (weights if how == "pruned" else 0)
        with torch.no_grad():
            np.testing.assert_allclose(net.forward(x.numpy()), model(x).numpy(), rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("nested", [False, True])
def test_plan_build_from_a_pruned_checkpoint_of_pytorch(tmp_path, nested):
    model = pruned(lambda: ResNet(20), "pruned")
    state = {f"module.{name}": array for name, array in model.state_dict().items()}
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    content = {"state_dict": state, "optimizer": optimizer.state_dict(), "epoch": 3} if nested else state
    torch.save(content, tmp_path / "model.pth")
    command = ["build", "resnet20", "--from", str(tmp_path / "model.pth"), "-o", str(tmp_path / "p.h5")]
    assert main([*command, "--device", "host", "--batch-size", "2", "--schedules", "linear"]) == 0
    net = build_model("resnet20", device="host")
    net.load_state_dict(model.state_dict(), by_order=True)
    plan = Plan.load(tmp_path / "p.h5")
    net.use(plan)
    with pytest.raises(bp.PlanMismatchError):
        build_model("resnet20", device="host").use(plan)
