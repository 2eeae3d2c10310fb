"""Lab 01 with a last rank that is killed in its sixth step, only in the job's first start."""

import os
import signal
import sys
from typing import Any

from pages.programs import TRAIN, script

RUN = {
    "steps": 8, "every": 1, "layers": 2, "hidden": 16, "heads": 4, "vocabulary": 70, "sequence": 8,
    "batch": 4, "lr": 1e-2, "dtype": "float64",
}  # fmt: skip
DIES = 5


def main() -> int:
    train = script(TRAIN)
    step = train.Trainer.step

    def mortal(trainer: Any, number: int) -> Any:
        last = trainer.world.rank == trainer.world.size - 1
        if number == DIES and last and "SLURM_RESTART_COUNT" not in os.environ:
            os.kill(os.getpid(), signal.SIGKILL)
        return step(trainer, number)

    train.Trainer.step = mortal
    return int(train.main())


if __name__ == "__main__":
    sys.exit(main())
