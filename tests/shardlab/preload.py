"""What the workers' bodies import, imported once, by the process that they are forked from.

torch._dynamo: whoever makes an optimizer imports it, for 1.3 s.
"""

import gc
import os

# torch.utils.cpp_extension asks for a GPU while it is imported. Asked of the CUDA runtime, that
# forbids CUDA in every process forked from this one; asked of the driver's NVML it doesn't.
os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
gc.disable()  # nothing here is garbage, and to find that out takes an eighth of the time

import hypothesis  # noqa: E402, F401
import pytest  # noqa: E402, F401
import torch._dynamo  # noqa: E402
import torch.distributed.fsdp  # noqa: E402
import torch.distributed.pipelining  # noqa: E402, F401

import costlab.implementations.dtensor  # noqa: E402
import costlab.implementations.megatron.gpt  # noqa: E402, F401
import shardlab.fsdp  # noqa: E402
import shardlab.proofs.formulas  # noqa: E402
import shardlab.training.checkpoint  # noqa: E402
import shardlab.training.step  # noqa: E402, F401

gc.freeze()  # here to stay: a collection in a worker would walk, and so copy, all of it
gc.enable()
