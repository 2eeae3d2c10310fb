"""Stage: what this machine is, as far as anything here depends on it."""

import importlib
import os
import platform
import shutil
import subprocess
import sys

from costlab.gpu_report.rows import tell

NEEDED = {  # module: what goes without it
    "torch": "everything", "numpy": "everything", "msgspec": "bench", "click": "bench",
    "rich": "bench", "pytest": "tests", "hypothesis": "tests", "xdist": "tests",
    "pytest_timeout": "tests", "safetensors": "checkpoints",
    "megatron.core": "what is measured beside ours, and a part of tests", "scipy": "that part",
}  # fmt: skip
QUERY = (
    "name,driver_version,memory.total,clocks.sm,clocks.mem,clocks.max.sm,power.limit,"
    "mig.mode.current"
)


def main(device: str) -> None:
    """Tell what is there; fail where the device that is asked for isn't."""
    tell("python", f"{platform.python_version()} at {sys.executable}")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    tell("host", f"{os.cpu_count()} cores, {memory:.0f} GiB, load {os.getloadavg()[0]:.1f}")
    for module, lost in NEEDED.items():
        try:
            imported = importlib.import_module(module)
        except Exception as error:  # a broken build raises anything
            tell(module, f"{type(error).__name__}: {error}; without it: {lost}", ok=False)
        else:
            tell(module, getattr(imported, "__version__", "there"), ok=True)
    nvidia_smi()
    torch_sees(device)


def nvidia_smi() -> None:
    """Tell what the driver says."""
    program = shutil.which("nvidia-smi")
    if not program:
        tell("nvidia-smi", "not there")
        return
    for name, arguments in (
        ("GPUs", [f"--query-gpu={QUERY}", "--format=csv,noheader"]), ("topology", ["topo", "-m"])
    ):  # fmt: skip
        done = subprocess.run(
            [program, *arguments], capture_output=True, text=True, check=False, timeout=30
        )
        print(done.stdout)  # whole in the log
        tell(name, done.stdout or done.stderr)


def torch_sees(device: str) -> None:
    """Tell what torch makes of it."""
    try:
        import torch
        import torch.distributed as dist
    except ImportError:
        return
    tell("torch's CUDA", torch.version.cuda or "none")
    tell("backends", f"gloo {dist.is_gloo_available()}, NCCL {dist.is_nccl_available()}")
    available = torch.cuda.is_available()
    if available:
        tell("NCCL", ".".join(map(str, torch.cuda.nccl.version())))  # type: ignore[no-untyped-call]
    for index in range(torch.cuda.device_count()) if available else ():
        its = torch.cuda.get_device_properties(index)
        tell(f"GPU {index}", f"{its.name}, {its.total_memory / 2**30:.0f} GiB, uuid {its.uuid}")
        a = torch.randn(512, 512, device=f"cuda:{index}")
        worst = float((a @ a - (a.cpu().double() @ a.cpu().double()).to(a)).abs().max())
        tell(f"GPU {index}: a product", f"differs from the CPU's by {worst:.1e}", ok=worst < 1e-1)
    tell("device asked for", device, ok=available or device == "cpu")
