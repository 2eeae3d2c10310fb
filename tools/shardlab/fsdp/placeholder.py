"""The placeholder of a parameter in its module while its unit is sharded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn


class ShardedAttributeError(AttributeError):
    """Raised when a parameter is used while its unit is sharded."""


class ShardedParameter:
    """A placeholder with a name and a shape; any other use raises an error that says what to do.

    Reading freed storage would crash the process. torch calls an argument's `__torch_function__`
    before it reads data, so the error is raised by the call that uses the parameter.
    """

    def __init__(self, name: str, shape: Sequence[int]) -> None:
        self.name = name
        self.shape = tuple(shape)

    def __repr__(self) -> str:
        return f"<{self.name} {self.shape}, sharded>"

    def __getattr__(self, attribute: str) -> NoReturn:
        raise ShardedAttributeError(_advise(self.name, f"its .{attribute} was asked for"))

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> NoReturn:
        values = [*args, *(kwargs or {}).values()]
        flat = [x for value in values for x in (value if isinstance(value, list) else [value])]
        names = ", ".join(x.name for x in flat if isinstance(x, cls)) or "a parameter"
        raise RuntimeError(_advise(names, f"{getattr(function, '__name__', function)} uses it"))


def _advise(name: str, what: str) -> str:
    return (
        f"{name} is sharded, and {what}: its unit holds full parameters only inside its own "
        "forward and backward; call the unit itself, or work inside `with model.gathered():`"
    )
