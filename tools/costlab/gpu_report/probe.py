"""Stage: what this machine is, as far as anything here depends on it."""

import importlib
import subprocess
import sys

from costlab.gpu_report.report import tell

NEEDED = {  # module: what goes without it
    "torch": "everything", "numpy": "everything", "msgspec": "bench", "click": "bench",
    "rich": "bench", "pytest": "tests", "hypothesis": "tests", "pytest_timeout": "tests",
    "safetensors": "checkpoints", "megatron.core": "what is measured beside ours, some tests",
    "scipy": "a part of tests",
}  # fmt: skip


def main(device: str) -> int:
    """Tell what is there; fail where torch, or the device that is asked for, isn't."""
    for module, lost in NEEDED.items():
        try:
            imported = importlib.import_module(module)
        except Exception as error:  # a broken build raises anything
            why = f"{type(error).__name__}: {error}; without it: {lost}"
            tell(module, why, ok=False if lost == "everything" else None)
        else:
            tell(module, getattr(imported, "__version__", "there"), ok=True)
    if "torch" not in sys.modules:
        return 1
    import torch

    subprocess.run([sys.executable, "-m", "torch.utils.collect_env"], check=False, timeout=60)
    there = torch.cuda.is_available()
    tell("device asked for", device, ok=there or device == "cpu")
    for index in range(torch.cuda.device_count()) if there else ():
        x = torch.randn(512, 512, device=f"cuda:{index}")
        worst = float((x @ x - (x.cpu().double() @ x.cpu().double()).to(x)).abs().max())
        name = torch.cuda.get_device_name(index)
        tell(f"GPU {index}: a product", f"{name}: {worst:.1e} from the CPU's", ok=worst < 1e-1)
    return 0
