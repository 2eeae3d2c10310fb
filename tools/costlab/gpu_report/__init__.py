"""tools/gpu-report: what needs a GPU, in four stages that nothing stops, and one report.

For whoever borrows a machine with GPUs for half an hour. `runner` starts the stages, and needs
nothing but Python; `stages` has them, `ranks` and `throughput` are what one of them
starts. Nothing depends on this folder: it may be deleted with tools/gpu-report, its tests and
docs/reference/gpus.md's first half. The processor stands in for GPUs with `--device cpu`.
"""
