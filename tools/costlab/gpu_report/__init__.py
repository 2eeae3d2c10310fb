"""tools/gpu-report: everything on a machine with GPUs, in stages that nothing stops, one report.

`runner` starts the stages, and needs nothing but Python; each other module is a stage, or what
ranks of a stage run. The processor stands in for GPUs with `--device cpu`.
"""
