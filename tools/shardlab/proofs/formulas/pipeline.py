"""Pipelines: activations go to the next stage, their gradients come back."""

from shardlab.proofs.collective import Traffic, calls


def pipeline(
    *, payload: int, micro_batches: int, stage: int, stages: int, chunks: int = 1
) -> Traffic:
    """Activations to the next stage, gradients to the one before; the schedule changes nothing.

    Args:
        payload: bytes of what crosses between two stages for one micro-batch: S · B · H elements
            (a tensor rank's share of them under sequence parallelism).
        micro_batches: in a step.
        stage: this rank's, from 0.
        stages: along the pipeline axis.
        chunks: model chunks a stage; piece c · stages + stage is this rank's chunk c.

    """
    pieces = [chunk * stages + stage for chunk in range(chunks)]
    after = sum(piece < stages * chunks - 1 for piece in pieces) * micro_batches
    before = sum(piece > 0 for piece in pieces) * micro_batches
    if stages == 1:
        return Traffic()
    return Traffic(
        calls("send", payload, 2, after) + calls("recv", payload, 2, before),
        calls("send", payload, 2, before) + calls("recv", payload, 2, after),
    )
