"""`python -m costlab.gpu_report STAGE DEVICE`: one stage, or a part that has its own process."""

import importlib
import sys

name, *arguments = sys.argv[1:]
if name in ("throughput", "footprints"):  # torch, which a stage may find missing
    main = getattr(importlib.import_module("costlab.gpu_report.throughput"), f"measure_{name}")
else:
    main = getattr(importlib.import_module("costlab.gpu_report.stages"), f"run_{name}")
sys.exit(main(*arguments))
