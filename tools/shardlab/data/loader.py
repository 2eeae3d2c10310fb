"""Batches: each data rank reads its share, each pipeline stage only what it looks at.

Dimensions: B samples of a rank's share, S tokens of a sample.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shardlab.comm import Axis
from shardlab.data.blend import Blend
from shardlab.data.corpus import demand
from shardlab.data.samples import PAD, Samples
from shardlab.layers.cross_entropy import IGNORED


class Loader:
    """Reads this rank's share of any batch; nothing is kept between two, so any can be next.

    Args:
        samples: what to read, the same on every rank.
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
        given = f"a batch of {batch} over {data.size} data ranks"
        demand(batch > 0 and batch % data.size == 0, f"{given}: choose a multiple")
        demand(samples.extra, "samples end without a last label: make them by Recipe(extra=True)")
        self.samples, self.batch = samples, batch
        each = batch // data.size
        self._share = range(data.rank * each, (data.rank + 1) * each)
        self._first, self._last = pipeline.rank == 0, pipeline.rank == pipeline.size - 1

    def read(self, consumed: int) -> tuple[Tensor | None, Tensor | None]:
        """Return (tokens, labels) [B, S] of the batch that comes after `consumed` samples.

        Where a last sample is padded, tokens are 0 and labels IGNORED.
        To resume is to ask for what comes after those that `resume` returns.

        Raises:
            DataError: fewer samples are left than a batch takes.
        """
        asked = f"a batch of {self.batch} after {consumed} samples, and there are"
        left = 0 <= consumed <= len(self.samples) - self.batch
        demand(left, f"{asked} {len(self.samples)}: build more, or stop")
        if not (self._first or self._last):
            return None, None
        text = torch.from_numpy(np.array([self.samples[consumed + place] for place in self._share]))
        none = text == PAD
        tokens = text.masked_fill(none, 0)[:, :-1] if self._first else None
        return tokens, text.masked_fill(none, IGNORED)[:, 1:] if self._last else None

    def state(self, consumed: int) -> dict[str, Any]:
        """Return what a checkpoint must hold, in plain values, after `consumed` samples.

        `about` has the words for what the other values are compared by.
        """
        samples = self.samples
        about = {
            "sequence": f"a sequence length of {samples.sequence}",
            "corpora": samples.corpora_text, "order": samples.order_text,
        }  # fmt: skip
        return {
            "consumed": consumed, "sequence": samples.sequence, "corpora": samples.content,
            "order": samples.key(consumed), "about": about,
        }  # fmt: skip

    def resume(self, state: Mapping[str, Any]) -> int:
        """Return how many samples a state says were consumed; a batch size may be another one.

        Raises:
            DataError: these samples are not those of the state, or come in another order.
        """
        consumed = int(state["consumed"])
        present = self.state(consumed)
        for name, text in present["about"].items():
            demand(
                present[name] == state[name],
                f"{consumed} samples were read with {state['about'][name]}, and the next ones "
                f"would be read with {text}, which may repeat text: choose the former again",
            )
        return consumed
