"""FSDP of one unit: wrong answers by the sentence that they break, and other right ones."""

from __future__ import annotations

from tests.shardlab.labs.mutants.mutant import Mutant

GATHER = "        dist.all_gather_single(whole, shard)\n"
SCATTER = "        dist.reduce_scatter_single(piece, grad.contiguous())\n"
DIVIDED = "return piece / dist.get_world_size()"
PAD = "pad(flat, (0, -flat.numel() % dist.get_world_size()))"
SHARD = "nn.Parameter(flat.chunk(dist.get_world_size())[dist.get_rank()].clone())"
META = 'self.module = module.to("meta")'
HOOKS = "        with saved_tensors_hooks(place, find):\n            return"
CLEAR = "        whole.register_hook(lambda _: again.clear())"

CONTRACT = {
    "All-gather [s] to [n·s].": {
        "gather forgets to return": Mutant(
            "        return whole\n", "", "Gather.forward returns nothing: its last line needs a"
        ),
        "its own piece, twice": Mutant(
            GATHER,
            "        whole.copy_(shard.repeat(dist.get_world_size()))\n",
            "Gather.forward: * this rank's own piece, once for each rank",
        ),
        "its own piece": Mutant(
            "        return whole\n",
            "        return shard.clone()\n",
            "Gather.forward: expected shape [6], found [3]. It is this rank's own piece: nothing",
        ),
        "the sum": Mutant(
            "        return whole\n",
            "        return whole.view(dist.get_world_size(), -1).sum(0)\n",
            "Gather.forward: expected shape [6], found [3]. It is the sum of the pieces",
        ),
        "rows": Mutant(
            "        return whole\n",
            "        return whole.view(dist.get_world_size(), -1)\n",
            "Gather.forward: expected shape [6], found [2, 3]. The pieces are rows",
        ),
        "gathered twice": Mutant(
            GATHER, GATHER * 2, "Gather.forward: expected all_gather of 48 B on the wire, found"
        ),
        "all-reduced for gathered": Mutant(
            GATHER,
            "        whole.zero_()\n        s = shard.numel()\n"
            "        whole[dist.get_rank() * s :][:s] = shard\n        dist.all_reduce(whole)\n",
            "Gather.forward: expected all_gather of 48 B on the wire, found all_reduce of 48 B",
        ),
        "one rank's only": Mutant(
            GATHER,
            GATHER
            + "        s = shard.numel()\n        whole[(1 - dist.get_rank()) * s :][:s] = 0\n",
            "Gather.forward: * The other rank's piece is missing",
        ),
    },
    "All ranks' pieces, one after another;": {
        "the last rank first": Mutant(
            "        return whole\n",
            "        return torch.cat(whole.chunk(dist.get_world_size())[::-1])\n",
            "The pieces are in the wrong order: rank 0's comes first",
        ),
        "its own first": Mutant(
            "        return whole\n",
            "        return whole.roll(-dist.get_rank() * shard.numel())\n",
            "on rank 1, Gather.forward: * in the wrong order",
        ),
        "one of each in turn": Mutant(
            "        return whole\n",
            "        return whole.view(dist.get_world_size(), -1).T.flatten()\n",
            "The pieces are mixed number by number: put one after another",
        ),
    },
    "Reduce-scatter [n·s] to [s]: the mean over ranks, of this rank's piece.": {
        "the mean forgotten": Mutant(
            DIVIDED, "return piece", "exactly 2.00 x the right one. It is the sum: divide by"
        ),
        "divided twice": Mutant(DIVIDED, f"{DIVIDED} ** 2", "exactly 0.50 x * divided once too"),
        "forgets to return": Mutant(
            DIVIDED, "piece /= dist.get_world_size()", "Gather.backward returns nothing"
        ),
        "nothing sent": Mutant(
            SCATTER,
            "        piece.copy_(grad.chunk(dist.get_world_size())[dist.get_rank()])\n",
            "this rank's own gradient, divided: nothing was added to it",
        ),
        "the other's piece": Mutant(
            SCATTER,
            "        dist.reduce_scatter_single(piece, torch.cat(grad.chunk(2)[::-1]))\n",
            "Gather.backward * It is the other rank's piece",
        ),
        "all-reduced": Mutant(
            SCATTER,
            "        total = grad.contiguous().clone()\n        dist.all_reduce(total)\n"
            "        piece = total.chunk(2)[dist.get_rank()]\n",
            "found all_reduce of 48 B. * an all-reduce would send twice as much",
        ),
        "all of it": Mutant(
            SCATTER,
            "        piece = grad.contiguous().clone()\n        dist.all_reduce(piece)\n",
            "Gather.backward * expected shape [3], found [6]. A gradient has the shape of what",
        ),
        "all of the sum": Mutant(
            SCATTER + "        " + DIVIDED,
            "        piece = grad.contiguous().clone()\n        dist.all_reduce(piece)\n"
            "        return piece",
            "Gather.backward * expected shape [3], found [6]. A gradient has the shape of what",
        ),
        "zeros": Mutant(
            DIVIDED, "return 0 * piece", "exactly 0.00 x the right one. It is missing on this rank"
        ),
        "scattered twice": Mutant(
            SCATTER, SCATTER * 2, "found reduce_scatter of 48 B + reduce_scatter of 48 B. One"
        ),
        "the largest": Mutant(
            "grad.contiguous())",
            "grad.contiguous(), dist.ReduceOp.MAX)",
            "It is the larger of the ranks' numbers; expected their sum",
        ),
    },
    "All parameters, flattened one after another and padded with zeros to a multiple of the "
    "ranks,": {
        "padded in front": Mutant(
            "(0, -flat.numel() % dist.get_world_size())",
            "(-flat.numel() % dist.get_world_size(), 0)",
            "the shard: * The padding is at the front: it belongs at the end",
        ),
        "padded with ones": Mutant(
            "dist.get_world_size()))\n        self.shard",
            "dist.get_world_size()), value=1.0)\n        self.shard",
            "on rank 1, the shard: * The padding isn't zero",
        ),
        "always padded": Mutant(
            "-flat.numel() % dist.get_world_size()",
            "2 - flat.numel() % 2",
            "the shard: expected shape [7], found [8]. The padding was added though none is needed",
        ),
        "not padded": Mutant(
            f"        flat = {PAD}\n", "", "the shard: expected shape [39], found [38]. The pieces"
        ),
        "cut off": Mutant(
            f"flat = {PAD}",
            "flat = flat[: flat.numel() // 2 * 2]",
            "The last numbers are missing: pad, so",
        ),
        "from the last": Mutant(
            "for p in module.parameters()])",
            "for p in [*module.parameters()][::-1]])",
            "the shard: * The parameters are in the wrong order",
        ),
        "weights only": Mutant(
            "for p in module.parameters()])",
            "for p in module.parameters() if p.dim() > 1])",
            "the shard: expected shape [7], found [5]",
        ),
    },
    "are cut into as many equal pieces; rank r keeps piece r.": {
        "the other's piece of the weights": Mutant(
            "[dist.get_rank()].clone()",
            "[1 - dist.get_rank()].clone()",
            "the shard: * It is the other rank's piece: rank r keeps piece r",
        ),
        "the first piece": Mutant(
            "[dist.get_rank()].clone()", "[0].clone()", "on rank 1, the shard: * other rank's piece"
        ),
        "every second number": Mutant(
            SHARD,
            "nn.Parameter(flat[dist.get_rank() :: dist.get_world_size()].clone())",
            "A rank's piece is every second number",
        ),
        "all of the flat tensor": Mutant(
            SHARD, "nn.Parameter(flat.clone())", "It is all of the parameters"
        ),
        "in fp32": Mutant("[dist.get_rank()].clone()", "[dist.get_rank()].float()", "lost digits"),
    },
    "shard: this rank's piece, which is what an optimizer is given.": {
        "no parameter": Mutant(
            SHARD, SHARD.removeprefix("nn.Parameter"), "no optimizer would take it"
        ),
        "frozen": Mutant(
            "[dist.get_rank()].clone())",
            "[dist.get_rank()].clone(), requires_grad=False)",
            "no optimizer would take it",
        ),
        "no leaf": Mutant(SHARD, f"{SHARD} * 1", "no optimizer would take it; make it an nn.Param"),
        "under another name": Mutant(
            "self.shard", "self.piece", "expected a tensor as its `shard`"
        ),
        "trained apart": Mutant(
            "Gather.apply(self.shard)",
            "Gather.apply(self.shard.detach().requires_grad_())",
            "the shard's gradient: expected a tensor, found None. No gradient reaches it",
        ),
        "the first step's weights": Mutant(
            "        whole, again = Gather.apply(self.shard), []",
            "        self.first = getattr(self, 'first', self.shard.detach().clone())\n"
            "        self.shard.data = self.first.clone()\n"
            "        whole, again = Gather.apply(self.shard), []",
            "after forward 56 B more are in memory",
        ),
    },
    "From here on nobody holds the module's own parameters, nor the whole flat one.": {
        "a shard that is a view": Mutant(
            ".clone()", "", "the shard has 56 B, but its storage has 112: a chunk is a view"
        ),
        "the module as it was": Mutant(
            META, "self.module = module", "Unit.__init__ leaves 112 B in memory * module's own"
        ),
        "the flat tensor kept": Mutant(
            META, f"{META}\n        self.flat = flat", "Unit.__init__ leaves 112 B in memory"
        ),
        "a view kept": Mutant(
            META,
            f"{META}\n        self.first = flat[:1]",
            "Unit.__init__ leaves 112 B in memory in addition to the shard's 56",
        ),
        "a list of parameters kept": Mutant(
            "        self.shapes =",
            "        self.numbers = [p.detach() for p in module.parameters()]\n"
            "        self.shapes =",
            "Unit.__init__ leaves 112 B in memory",
        ),
        "a message in __init__": Mutant(
            f"        {META}",
            f"        dist.broadcast(flat, 0)\n        {META}",
            "Unit.__init__: expected nothing on the wire, found broadcast",
        ),
    },
    "Gather, and return what the module makes of `x`;": {
        "forward forgets to return": Mutant(
            "return functional_call", "functional_call", "Unit.forward returns nothing: its last"
        ),
        "gathered outside autograd": Mutant(
            CLEAR, "        whole.detach_()", "the output: autograd can't go back from it"
        ),
        "gathered twice in forward": Mutant(
            "        whole, again = ",
            "        Gather.apply(self.shard)\n        whole, again = ",
            "step 0, forward: expected all_gather of 112 B on the wire, found all_gather of "
            "112 B +",
        ),
        "without gathering": Mutant(
            "        whole, again = Gather.apply(self.shard), []",
            "        whole, again = self.shard.repeat(2), []",
            "step 0, the output: ",
        ),
        "parameters the other way round": Mutant(
            "zip(self.shapes.items(), pieces, strict=True)",
            "zip(self.shapes.items(), [*pieces[2:], *pieces[:2]], strict=True)",
            "in ",
        ),
        "the output halved": Mutant(
            "return functional_call(self.module, views, (x,))",
            "return functional_call(self.module, views, (x,)) / 2",
            "the output: * exactly 0.50 x",
        ),
    },
    "don't hold what was gathered.": {
        "whole after forward": Mutant(
            HOOKS,
            "        if True:\n            return",
            "after forward 112 B more are in memory than with an unsharded module*gather again",
        ),
        "kept on purpose": Mutant(
            "        here = whole",
            "        self.whole = whole\n        here = whole",
            "after forward 112 B more are in memory",
        ),
        "kept as detached": Mutant(
            "        here = whole",
            "        self.whole = whole.detach()\n        here = whole",
            "after forward 112 B more are in memory",
        ),
        "kept as copies": Mutant(
            "            return saved.shape, saved.stride(), saved.storage_offset()",
            "            return saved.clone()",
            "more are in memory than with an unsharded module",
        ),
        "the hook keeps it": Mutant(
            "        here = whole.untyped_storage().data_ptr()",
            "        here = whole.untyped_storage().data_ptr()\n        place.whole = whole\n"
            "        self.place = place",
            "after forward 112 B more are in memory",
        ),
    },
    "puts something smaller in their place: gather once more in backward.": {
        "whole after backward": Mutant(
            CLEAR, "        self.again = again", "after backward 112 B of what was gathered are"
        ),
        "gathered for each weight": Mutant(
            "            if not again:\n                again.append",
            "            if again.clear() is None:\n                again.append",
            "step 0, backward: expected",
        ),
        "gathered before it is needed": Mutant(
            "        here = whole",
            "        again.append(Gather.forward(None, self.shard.detach()))\n        here = whole",
            "step 0, forward: expected all_gather of 112 B on the wire, found all_gather of "
            "112 B +",
        ),
        "gathered by another way": Mutant(
            "again.append(Gather.forward(None, self.shard.detach()))",
            "again.append(Gather.forward(None, self.shard.detach())) or "
            "dist.all_reduce(again[0].clone())",
            "step 0, backward: expected all_gather of 112 B + reduce_scatter of 112 B on the wire",
        ),
        "another weight": Mutant(
            "return again[0].as_strided(*kept)",
            "return again[0].as_strided(*kept[:2], 0)",
            "the shard's gradient",
        ),
        "the piece for the whole": Mutant(
            "again.append(Gather.forward(None, self.shard.detach()))",
            "again.append(self.shard.detach().repeat(2))",
            "step 0",
        ),
    },
}

OTHER_WAYS = {
    "gathered as a list": (
        GATHER,
        "        dist.all_gather([*whole.chunk(dist.get_world_size())], shard)\n",
    ),
    "scattered as a list": (
        SCATTER,
        "        dist.reduce_scatter(piece, [*grad.contiguous().chunk(dist.get_world_size())])\n",
    ),
    "scattered as it lies": ("grad.contiguous()", "grad"),
    "divided before": (
        SCATTER + "        " + DIVIDED,
        SCATTER.replace("contiguous()", "contiguous() / dist.get_world_size()")
        + "        return piece",
    ),
    "padded by cat": (
        f"flat = {PAD}",
        "flat = torch.cat([flat, flat.new_zeros(-flat.numel() % dist.get_world_size())])",
    ),
    "parameters emptied": (
        META,
        f"for p in module.parameters():\n            p.data = p.data.new_empty(0)\n        {META}",
    ),
    "a tensor that requires a gradient": (
        SHARD,
        SHARD.removeprefix("nn.Parameter(")[:-1] + ".requires_grad_()",
    ),
}
