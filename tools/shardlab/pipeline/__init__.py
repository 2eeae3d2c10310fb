"""Pipeline parallelism: schedules of what each stage computes when, and the code that runs them.

A stage is a rank of the pipeline axis. A micro-batch is a slice of the batch. A chunk is one of the
pieces of the model that a stage holds: with p stages, chunk c of stage s is piece c·p + s of the
model (Megatron's virtual stages); with one chunk a stage, piece and stage are the same.

Read `plain_1f1b` first: 1F1B in three loops. The other files run any schedule: `action` (what a
stage can do), `schedule` (GPipe, 1F1B, interleaved, ZB-H1), `lockstep` (adds sends and receives),
then `neighbours` and `run` (they run a schedule). `action`, `schedule` and `lockstep` are pure
functions and don't import torch. `proofs/schedules` proves that a schedule ends:
`python -m shardlab.proofs.schedules --schedule 1f1b --stages 4 --microbatches 8` draws one.
"""
