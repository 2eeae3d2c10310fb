"""Batches: each data rank reads its share, and each pipeline stage only what it needs.

Dimensions: B samples of a rank's share, S tokens of a sample.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shardlab.comm import Axis
from shardlab.data.blend import Blend
from shardlab.data.corpus import require
from shardlab.data.samples import PAD, Samples
from shardlab.layers.cross_entropy import IGNORED


class Loader:
    """Reads this rank's share of any batch; it has no state, so batches may be read in any order.

    Args:
        samples: the samples, the same on every rank.
        batch: samples of a step, over all data ranks.
        data: the data axis; rank r reads the r-th of equal shares.
        pipeline: the pipeline axis: its first stage reads tokens, its last labels, others nothing.

    Raises:
        DataError: the data ranks don't divide the batch, or samples have no label for each token.
    """

    def __init__(
        self, samples: Samples | Blend, batch: int, *, data: Axis | None = None,
        pipeline: Axis | None = None,
    ) -> None:  # fmt: skip
        data, pipeline = data or Axis.alone(), pipeline or Axis.alone()
        batch_text = f"a batch of {batch} over {data.size} data ranks"
        require(batch > 0 and batch % data.size == 0, f"{batch_text}: choose a multiple")
        require(samples.extra, "samples end without a last label: make them by Recipe(extra=True)")
        self.samples, self.batch = samples, batch
        per_rank = batch // data.size
        self._share = range(data.rank * per_rank, (data.rank + 1) * per_rank)
        self._first, self._last = pipeline.rank == 0, pipeline.rank == pipeline.size - 1

    def read(self, consumed: int) -> tuple[Tensor | None, Tensor | None]:
        """Return (tokens, labels) [B, S] of the batch that follows `consumed` samples.

        In a padded last sample, tokens are 0 and labels IGNORED. To resume, pass the number that
        `resume` returns.

        Raises:
            DataError: fewer samples remain than a batch has.
        """
        batch_text = f"a batch of {self.batch} after {consumed} samples, and there are"
        available = 0 <= consumed <= len(self.samples) - self.batch
        require(available, f"{batch_text} {len(self.samples)}: build more, or stop")
        if not (self._first or self._last):
            return None, None
        text = torch.from_numpy(np.array([self.samples[consumed + place] for place in self._share]))
        padding = text == PAD
        tokens = text.masked_fill(padding, 0)[:, :-1] if self._first else None
        return tokens, text.masked_fill(padding, IGNORED)[:, 1:] if self._last else None

    def state(self, consumed: int) -> dict[str, Any]:
        """Return the loader's state for a checkpoint, as plain values, after `consumed` samples.

        `about` has descriptions of the other values, for errors.
        """
        samples = self.samples
        texts = {
            "sequence": f"a sequence length of {samples.sequence}",
            "corpora": samples.corpora_text, "order": samples.order_text,
        }  # fmt: skip
        return {
            "consumed": consumed, "sequence": samples.sequence, "corpora": samples.content,
            "order": samples.key(consumed), "about": texts,
        }  # fmt: skip

    def resume(self, state: Mapping[str, Any]) -> int:
        """Return the number of consumed samples of a state; the batch size may have changed.

        Raises:
            DataError: these samples are not those of the state, or are in another order.
        """
        consumed = int(state["consumed"])
        current = self.state(consumed)
        for name, text in current["about"].items():
            require(
                current[name] == state[name],
                f"{consumed} samples were read with {state['about'][name]}, and the next ones "
                f"would be read with {text}, which may repeat text: choose the former again",
            )
        return consumed
