"""The model that is proved: a file's `build`, its batches, and what it says it supports."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from shardlab.grid.grid import Grid
from shardlab.layers.cross_entropy import IGNORED
from shardlab.parity.case import Case, Supports, make_case, refuse

Batch = tuple[Any, Tensor]


@dataclass(frozen=True)
class Subject:
    """A model by its file and the name of its `build`.

    The file has `build(grid, stage=…, stages=…, **options)`, which returns one piece of the model;
    `batch(step)`, which returns (inputs, targets) of the whole batch; and SUPPORTS, a dict of the
    values that each setting of `Case`, and each option of `build`, may have. If a file has several
    models, a function may have its own as attributes, `build.batch` and `build.SUPPORTS`.

    Attributes:
        path: the file.
        name: the function.
    """

    path: str
    name: str

    @classmethod
    def parse(cls, text: str) -> Subject:
        """Return the subject of "my_model.py:build".

        Raises:
            ParityError: there is no such file, or no name.
        """
        path, _, name = text.rpartition(":")
        if not path or not Path(path).is_file():
            refuse("no-file", text=text)
        return cls(str(Path(path).absolute()), name)

    @property
    def supports(self) -> Supports:
        """What the model says it supports."""
        supports: Supports = self._attribute("SUPPORTS", 'a dict such as {"tensor": [1, 2]}')
        if not supports:
            refuse("no-supports")
        for name, values in supports.items():
            if not isinstance(values, list | tuple) or not values:
                refuse("no-list", name=name)
            for value in values:
                make_case({name: value}, {})
        return supports

    def batch(self, step: int) -> Batch:
        """Return (inputs, targets) of the whole batch of a step."""
        batch = self._attribute("batch", "a function of the step's number")(step)
        if not (isinstance(batch, tuple) and len(batch) == 2 and isinstance(batch[1], Tensor)):
            refuse("batch")
        return batch

    def make(self, grid: Grid, case: Case, piece: int = 0, pieces: int = 1) -> Any:
        """Return piece `piece` of `pieces` on this rank, drawn from the same seed everywhere."""
        torch.manual_seed(0)
        build: Callable[..., Any] = self._attribute(self.name, "a function that returns a module")
        model = build(grid, stage=piece, stages=pieces, **dict(case.options))
        if not isinstance(model, nn.Module):
            refuse("no-module", name=self.name, kind=type(model).__name__)
        return model

    def _attribute(self, name: str, what: str) -> Any:
        module = _load(self.path)
        value = getattr(getattr(module, self.name, None), name, getattr(module, name, None))
        if value is None:
            refuse("no-attribute", file=Path(self.path).name, name=name, what=what)
        return value


def count_targets(targets: Tensor) -> int:
    """Return the number of targets that count."""
    return int((targets != IGNORED).sum())


def _load(path: str) -> ModuleType:
    name = f"parity_subject_{Path(path).stem}"
    module = sys.modules.get(name)
    if module is not None and module.__file__ == path:
        return module
    spec = spec_from_file_location(name, path)
    assert spec
    assert spec.loader
    module = sys.modules[name] = module_from_spec(spec)
    sys.path.insert(0, str(Path(path).parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        refuse("import", path=path, error=f"{type(error).__name__}: {error}")
    return module
