"""Layers whose deep copies keep what is noted on their parameters.

An average of the weights begins as `copy.deepcopy(model)`. torch copies a parameter's values and
nothing that was noted on it; a copy that has forgotten how it is cut, or which gradients are
partial, still trains, clips and saves: wrongly.
"""

from __future__ import annotations

import copy
from typing import Any, TypeVar

from torch import nn

from shardlab.layers import partial_gradients, sharding

Module = TypeVar("Module", bound="CopyableModule")


class CopyableModule(nn.Module):
    """A module that holds marked parameters."""

    def __deepcopy__(self: Module, memo: dict[int, Any]) -> Module:
        """Copy as any module is, and mark the copies."""
        copied = memo[id(self)] = type(self).__new__(type(self))
        copied.__setstate__(copy.deepcopy(self.__dict__, memo))  # type: ignore[no-untyped-call]
        for name, parameter in self._parameters.items():
            if parameter is None:
                continue
            twin = copied.get_parameter(name)
            if (cut := sharding.sharding_of(parameter)) is not None:
                sharding.mark(twin, cut)
            if partial_gradients.is_marked(parameter):
                partial_gradients.mark(twin)
        return copied
