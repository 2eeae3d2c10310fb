"""`python -m costlab.gpu_report STAGE DEVICE`: one stage, or `throughput DEVICE`, of one."""

import importlib
import sys

name, *arguments = sys.argv[1:]
if name == "throughput":  # it imports torch, which a stage may find missing
    main = importlib.import_module("costlab.gpu_report.throughput").main
else:
    main = getattr(importlib.import_module("costlab.gpu_report.stages"), f"run_{name}")
sys.exit(main(*arguments))
