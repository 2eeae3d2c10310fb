"""Any module as a pipeline stage of megatron-core's schedules.

Dimensions: S sequence, B batch, H hidden.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch import Tensor, nn

from costlab.implementations.megatron import ModelType, schedules

Loss = Callable[[Tensor, Tensor], Tensor]


class MegatronStage(nn.Module):
    """What a schedule asks of a model: a config, and an input that is set from outside.

    Args:
        module: from the micro-batch (first piece) or [S, B, H] to what the next piece takes.
        config: Megatron's.
        vp_stage: which chunk of its stage it is, where there are several.
    """

    def __init__(self, module: nn.Module, config: Any, vp_stage: int | None = None) -> None:
        super().__init__()
        self.module, self.config, self.vp_stage = module, config, vp_stage
        self.model_type = ModelType.encoder_or_decoder
        self.received: Tensor | None = None

    def set_input_tensor(self, tensors: list[Tensor | None]) -> None:
        """Megatron hands over what the stage before sent."""
        self.received = tensors[0]

    def forward(self, x: Tensor) -> Tensor:
        """Run the module on what was received, or on the micro-batch."""
        out: Tensor = self.module(x if self.received is None else self.received)
        return out


def forward_step(loss: Loss) -> Callable[[Iterator[tuple[Tensor, Tensor]], MegatronStage], Any]:
    """Megatron's `forward_step_func`: the output, and how to get a loss from it."""

    def step(microbatches: Iterator[tuple[Tensor, Tensor]], stage: MegatronStage) -> Any:
        inputs, target = next(microbatches)

        def lose(output: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
            value = loss(output, target)
            return value, {"loss": value.detach().clone()}  # the schedule scales it in place

        return stage(inputs), lose

    return step


def step(
    pieces: Sequence[MegatronStage], data: Sequence[tuple[Tensor, Tensor]], loss: Loss,
    sequence: int, batch: int,
) -> list[Tensor]:  # fmt: skip
    """Run the schedule that Megatron's parallel state asks for, over this stage's pieces.

    Returns:
        each micro-batch's loss, on the last stage; elsewhere none.
    """
    run: Any = schedules.get_forward_backward_func()
    several = len(pieces) > 1
    losses = run(
        forward_step_func=forward_step(loss),
        data_iterator=[iter(data) for _ in pieces] if several else iter(data),
        model=list(pieces) if several else pieces[0],
        num_microbatches=len(data), seq_length=sequence, micro_batch_size=batch,
    )  # fmt: skip
    return [output["loss"] for output in losses]
