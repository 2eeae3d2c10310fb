"""Four ways to complete a step's gradients, of which one is right. Lab 04 asks which.

Open this file when you have your answer.

Each rank has run backward from the mean loss of its own tokens. `a_mean` is what the gradients are
to become: those of the mean loss over all tokens.
"""

from collections.abc import Callable

from torch import Tensor, nn

from shardlab.comm import Axis
from shardlab.experts.layer import ExpertLayer
from shardlab.grid.grid import Grid


def summed(module: nn.Module, axis: Axis, divisor: int) -> None:
    """Sum a module's gradients over an axis and divide them."""
    for parameter in module.parameters():
        # An expert that no token of this rank's group chose has the gradient zero, not none.
        grad: Tensor = parameter.new_zeros(parameter.shape)
        if parameter.grad is not None:
            grad = parameter.grad
        parameter.grad = axis.all_reduce(grad) / divisor


def way_a(layer: ExpertLayer, grid: Grid) -> None:
    """Average each gradient over the ranks that hold a copy of its parameter."""
    summed(layer.router, grid.data, grid.data.size)
    summed(layer.experts, grid.expert_data, grid.expert_data.size)


def way_b(layer: ExpertLayer, grid: Grid) -> None:
    """Sum over the copies, divide by the ranks that had tokens."""
    summed(layer.router, grid.data, grid.data.size)
    summed(layer.experts, grid.expert_data, grid.data.size)


def way_c(layer: ExpertLayer, grid: Grid) -> None:
    """Average every gradient over the data ranks."""
    summed(layer.router, grid.data, grid.data.size)
    summed(layer.experts, grid.data, grid.data.size)


def way_d(layer: ExpertLayer, grid: Grid) -> None:
    """Treat the whole layer as experts are treated."""
    summed(layer.router, grid.expert_data, grid.data.size)
    summed(layer.experts, grid.expert_data, grid.data.size)


WAYS: dict[str, Callable[[ExpertLayer, Grid], None]] = {
    "a": way_a, "b": way_b, "c": way_c, "d": way_d,
}  # fmt: skip
