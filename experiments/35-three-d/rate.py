"""How fast lab 01 learns: a rise, then half a cosine down to a tenth, over the steps of all runs.

A function of the step alone, so that a run which goes on from a checkpoint needs nothing but the
step to be where it was.
"""

import math
from functools import partial

from settings import Settings
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

LEAST = 0.1


def factor(step: int, *, warmup: int, decay: int | None) -> float:
    """Return what the rate is multiplied by in a step."""
    if step < warmup:
        return (step + 1) / (warmup + 1)  # not 0, which would be a step for nothing
    if decay is None:
        return 1.0
    done = min(1.0, (step - warmup) / (decay - warmup))
    return LEAST + (1 - LEAST) * (1 + math.cos(math.pi * done)) / 2


def paced(optimizer: Optimizer, settings: Settings, step: int) -> LambdaLR:
    """Have the optimizer's rate follow `factor`, from `step` on."""
    of_step = partial(factor, warmup=settings.warmup, decay=settings.decay)
    return LambdaLR(optimizer, of_step, last_epoch=step - 1)
