"""`python -m costlab.gpu_report STAGE DEVICE …`: one stage, or a rank of one, by its module."""

import importlib
import sys

module, *arguments = sys.argv[1:]
sys.exit(importlib.import_module(f"costlab.gpu_report.{module}").main(*arguments))
