"""`python -m costlab.gpu_report STAGE DEVICE`: one stage, or a part that has its own process."""

import importlib
import sys

name, *arguments = sys.argv[1:]
if name in ("throughput", "footprints"):  # they import torch, which a stage may find missing
    main = importlib.import_module(f"costlab.gpu_report.{name}").main
else:
    main = getattr(importlib.import_module("costlab.gpu_report.stages"), f"run_{name}")
sys.exit(main(*arguments))
