"""Pipeline parallelism: which stage does what when, and the run.

A stage is a rank of the pipeline axis. A micro-batch is a slice of the batch. A chunk is one of the
pieces of the model that a stage holds: with p stages, chunk c of stage s is piece c·p + s of the
model (Megatron's virtual stages); with one chunk a stage, piece and stage are the same.

Read `action` (what a stage can do), `schedule` (GPipe, 1F1B, interleaved, ZB-H1), `lockstep` (sends
and receives put in), `neighbours` and `run` (it runs). All but the last two are functions of
values and import no torch. That a schedule ends is proved in `proofs/schedules`:
`python -m shardlab.proofs.schedules --schedule 1f1b --stages 4 --microbatches 8` draws one.
"""
