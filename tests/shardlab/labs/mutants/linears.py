"""The two linear layers: wrong answers by the sentence that they break, and other right ones."""

from __future__ import annotations

from tests.shardlab.labs.mutants.mutant import Mutant

LINEAR = "linear(F.apply(x_ND), w_fD, b_f)"
ROW = "G.apply(linear(x_Nf, w_Df)) + b_D"
CLONE = "part.clone(memory_format=torch.contiguous_format)"
REDUCE = "    dist.all_reduce(total)\n"

CONTRACT = {
    "`F.apply(x)` is x.": {
        "f doubles": Mutant("x_ND.view_as(x_ND)", "x_ND * 2", "exactly 2.00 x the right one. It"),
        "f halves": Mutant("x_ND.view_as(x_ND)", "x_ND / 2", "divided once too often"),
        "f is zero": Mutant("x_ND.view_as(x_ND)", "x_ND * 0", "exactly 0.00 x * missing on this"),
        "f is zero on one rank": Mutant(
            "x_ND.view_as(x_ND)", "x_ND * dist.get_rank()", "on rank 0, F.forward * missing on this"
        ),
        "f flips": Mutant("x_ND.view_as(x_ND)", "-x_ND", "Its sign is wrong"),
        "f transposes": Mutant("x_ND.view_as(x_ND)", "x_ND.T", "expected shape [3, 4], found"),
        "f in fp32": Mutant("x_ND.view_as(x_ND)", "x_ND.float()", "converts it, and it has lost"),
        "f forgets to return": Mutant(
            "return x_ND.view_as(x_ND)", "x_ND.view_as(x_ND)", "F.forward returns nothing: its last"
        ),
        "f is the first rank's": Mutant(
            "return x_ND.view_as(x_ND)",
            "x = x_ND.contiguous()\n        dist.broadcast(x, 0)\n        return x",
            "F.forward * expected nothing on the wire, found broadcast of 96 B",
        ),
    },
    "Return x, and send nothing.": {
        "f sums forward": Mutant(
            "x_ND.view_as(x_ND)", "summed(x_ND)", "F.forward * It is the sum over ranks, but here"
        ),
        "f sums, and forgets it": Mutant(
            "return x_ND.view_as(x_ND)",
            "summed(x_ND)\n        return x_ND.view_as(x_ND)",
            "F.forward * expected nothing on the wire, found all_reduce of 96 B. * send nothing",
        ),
        "f waits for all": Mutant(
            "return x_ND.view_as(x_ND)",
            "dist.all_reduce(torch.zeros(1))\n        return x_ND.view_as(x_ND)",
            "F.forward * expected nothing on the wire, found all_reduce of 4 B",
        ),
        "f detached": Mutant(
            "ctx, x_ND):\n        return x_ND.view_as(x_ND)",
            "ctx, x_ND):\n        y = x_ND.view_as(x_ND)\n        ctx.mark_non_differentiable(y)\n"
            "        return y",
            "autograd can't go back from it",
        ),
    },
    "Return the sum over ranks; `dx_ND` itself stays as it is, and may be non-contiguous.": {
        "nobody sums dX": Mutant(
            "return summed(dx_ND)",
            "return dx_ND",
            "F.backward * It is the input, unchanged: nothing was all-reduced",
        ),
        "f forgets to return dX": Mutant(
            "return summed(dx_ND)", "summed(dx_ND)", "F.backward returns nothing: its last line"
        ),
        "a sum that returns nothing": Mutant(
            "    return total", "    total", "F.backward returns nothing: its last line needs"
        ),
        "Megatron's _reduce": Mutant(
            CLONE + "\n    dist.all_reduce(total)\n    return total",
            "part.contiguous()\n    dist.all_reduce(total)\n    return part",
            "F.backward * only a copy was, which was not returned",
        ),
        "contiguous, then summed in place": Mutant(
            CLONE,
            "part.contiguous()",
            "what F.backward of a tensor that is contiguous was given"
            ", afterwards: * works in place: clone first",
        ),
        "summed in place": Mutant(
            CLONE,
            "part",
            "works in place: clone first",
        ),
        "copied back": Mutant(
            "return summed(dx_ND)",
            "return dx_ND.copy_(summed(dx_ND))",
            "what F.backward * was given, afterwards: * works in place: clone first",
        ),
        "cloned as it lies": Mutant(
            CLONE, "part.clone()", "order in memory differs: make the copy contiguous"
        ),
        "detached, in place": Mutant(
            CLONE, "part.detach().contiguous()", "works in place: clone first"
        ),
        "doubled in place": Mutant(
            "return summed(dx_ND)",
            "dx = summed(dx_ND)\n        dx_ND.mul_(2)\n        return dx",
            "multiplied or divided in place: clone first",
        ),
        "the mean": Mutant(
            "    return total", "    return total / 2", "exactly 0.50 x * divided once too often"
        ),
        "summed twice": Mutant(
            REDUCE, REDUCE * 2, "exactly 2.00 x the right one. It was summed twice"
        ),
        "the largest": Mutant(
            REDUCE,
            "    dist.all_reduce(total, dist.ReduceOp.MAX)\n",
            "It is the larger of the ranks' numbers; expected their sum",
        ),
        "the product": Mutant(
            REDUCE,
            "    dist.all_reduce(total, dist.ReduceOp.PRODUCT)\n",
            "It is the product of the ranks' numbers; expected their sum",
        ),
        "summed on rank 0 only": Mutant(
            REDUCE, "    dist.reduce(total, 0)\n", "found reduce of 96 B"
        ),
        "gathered and added": Mutant(
            REDUCE,
            "    parts = [torch.empty_like(total) for _ in range(2)]\n"
            "    dist.all_gather(parts, total)\n    total = parts[0] + parts[1]\n",
            "F.backward * expected all_reduce of 96 B on the wire, found all_gather of 192 B. One",
        ),
        "the other rank's": Mutant(
            "    return total", "    return total - part", "It is the other rank's: nothing was"
        ),
        "fp32": Mutant(CLONE, f"{CLONE}.float()", "right to seven digits only"),
        "fp32 on the wire": Mutant(
            REDUCE,
            "    half = total.float()\n    dist.all_reduce(half)\n    total = half.double()\n",
            "It is right to seven digits only: something computes in fp32",
        ),
        "larger on one rank": Mutant(
            REDUCE,
            "    dist.all_reduce(total if dist.get_rank() else torch.zeros(99))\n",
            "rank 0 enters all_reduce of 396 B (its collective 1), and rank 1 all_reduce of 96 B",
        ),
        "one rank sums": Mutant(
            REDUCE,
            "    if dist.get_rank() == 0:\n        dist.all_reduce(total)\n",
            "on rank 1, F.backward * It is the input, unchanged: nothing was all-reduced",
        ),
        "one more gradient": Mutant(
            "return summed(dx_ND)",
            "return summed(dx_ND), dx_ND",
            "F.backward: expected 1 gradient, found 2. Return one for each tensor",
        ),
    },
    "Return the sum over ranks; `y_ND` itself stays as it is, and may be non-contiguous.": {
        "g doesn't sum": Mutant(
            "return summed(y_ND)", "return y_ND.view_as(y_ND)", "G.forward * It is the input, unch"
        ),
        "g forgets to return": Mutant(
            "return summed(y_ND)", "summed(y_ND)", "G.forward returns nothing: its last line"
        ),
        "g in place": Mutant(
            "return summed(y_ND)",
            "ctx.mark_dirty(y_ND)\n        return y_ND.copy_(summed(y_ND))",
            "what G.forward * was given, afterwards: * works in place: clone first",
        ),
        "g contiguous, then in place": Mutant(
            "return summed(y_ND)",
            "y = y_ND.contiguous()\n        dist.all_reduce(y)\n        return y.view_as(y)",
            "what G.forward of a tensor that is contiguous was given, afterwards: * in place",
        ),
        "g averages": Mutant(
            "return summed(y_ND)", "return summed(y_ND) / 2", "G.forward * divided once too often"
        ),
        "g sums twice": Mutant(
            "return summed(y_ND)", "return 2 * summed(y_ND)", "exactly 2.00 x * summed twice"
        ),
        "g keeps its own": Mutant(
            "return summed(y_ND)",
            "summed(y_ND)\n        return y_ND.view_as(y_ND)",
            "G.forward * It is the input, unchanged",
        ),
    },
    "Return the gradient of this rank's `y_ND`.": {
        "g sums backward": Mutant(
            "return dy_ND", "return summed(dy_ND)", "G.backward * It is the sum over ranks, but"
        ),
        "g forgets to return dY": Mutant(
            "return dy_ND", "dy_ND", "G.backward returns nothing: its last line needs a `return`"
        ),
        "g averages dY": Mutant(
            "return dy_ND", "return dy_ND / 2", "exactly 0.50 x the right one. It was divided once"
        ),
        "g doubles dY": Mutant("return dy_ND", "return dy_ND * 2", "exactly 2.00 x the right one"),
        "g's dY on one rank": Mutant(
            "return dy_ND",
            "return dy_ND * (dist.get_rank() == 0)",
            "on rank 1, G.backward * exactly 0.00 x * missing on this rank",
        ),
        "g sums dY, and forgets it": Mutant(
            "return dy_ND", "summed(dy_ND)\n        return dy_ND", "found all_reduce of 96 B. Each"
        ),
    },
    "Return this rank's outputs y_Nf, of x·Wᵀ + b.": {
        "column without f": Mutant(
            "F.apply(x_ND)", "x_ND", "column: gradient of its x: * sum over ranks is missing (F)"
        ),
        "column with g": Mutant(
            "F.apply(x_ND)", "G.apply(x_ND)", "column's output: * x enters through F"
        ),
        "column with f and g": Mutant(
            f"return {LINEAR}", f"return G.apply({LINEAR})", "each rank's own outputs"
        ),
        "column without its bias": Mutant(LINEAR, "linear(F.apply(x_ND), w_fD)", "The bias is mis"),
        "column minus its bias": Mutant(
            LINEAR, "linear(F.apply(x_ND), w_fD) - b_f", "The bias was subtracted"
        ),
        "column forgets to return": Mutant(f"return {LINEAR}", LINEAR, "column returns nothing"),
        "column gathers": Mutant(
            f"return {LINEAR}",
            f"y = {LINEAR}\n    parts = [torch.empty_like(y) for _ in range(2)]\n"
            "    dist.all_gather(parts, y)\n    return torch.cat(parts, 1)",
            "column's output: expected shape [5, 2], found [5, 4]. It was gathered",
        ),
        "column gathers, and forgets it": Mutant(
            f"return {LINEAR}",
            f"y = {LINEAR}\n    parts = [torch.empty_like(y) for _ in range(2)]\n"
            "    dist.all_gather(parts, y)\n    return y",
            "column, forward: expected nothing on the wire, found all_gather of 160 B. x is whole",
        ),
        "column with f around": Mutant(
            f"return {LINEAR}",
            "return F.apply(linear(x_ND, w_fD, b_f))",
            "column: gradient of its",
        ),
        "column sums dW": Mutant(
            LINEAR,
            "linear(F.apply(x_ND), F.apply(w_fD), b_f)",
            "gradient of its weight: * each rank has a part of its own: sum only dX",
        ),
        "column sums db": Mutant(
            LINEAR,
            "linear(F.apply(x_ND), w_fD, F.apply(b_f))",
            "gradient of its bias: * each rank has a part of its own: sum only dX",
        ),
        "column enters twice": Mutant(
            "F.apply(x_ND)", "F.apply(F.apply(x_ND))", "column: gradient of its x: * exactly 2.00 x"
        ),
        "column outside autograd": Mutant(
            LINEAR, f"{LINEAR}.detach()", "column's output: autograd can't go back from it"
        ),
        "column's x outside autograd": Mutant(
            "F.apply(x_ND)", "F.apply(x_ND.detach())", "column: gradient of its x: * found None"
        ),
        "column's bias outside autograd": Mutant(
            LINEAR, "linear(F.apply(x_ND), w_fD, b_f.data)", "gradient of its bias: * found None"
        ),
        "column for three rows": Mutant(
            LINEAR, "linear(F.apply(x_ND), w_fD[:1], b_f[:1])", "column's output: expected shape"
        ),
        "column changes x": Mutant(
            f"return {LINEAR}",
            f"y = {LINEAR}\n    x_ND.data += 1\n    return y",
            "column's x, afterwards: * It was changed in place",
        ),
        "one rank fails": Mutant(
            LINEAR,
            "linear(F.apply(x_ND), w_fD, b_f[: 9 * dist.get_rank()])",
            "on rank 0, linears.py:*, in column: RuntimeError: ",
        ),
        "one rank dies": Mutant(
            LINEAR,
            f"{LINEAR} if dist.get_rank() else __import__('os')._exit(3)",
            "on rank 0, its process ended, with exit code 3",
        ),
        "no Python": Mutant("import torch\n", "import torch as\n", "SyntaxError: "),
    },
    "Return y_ND = x·Wᵀ + b, whole on every rank.": {
        "a bias on each rank": Mutant(
            ROW,
            "G.apply(linear(x_Nf, w_Df, b_D))",
            "row's output: * Every rank added the bias: add it once, after the sum",
        ),
        "half a bias on each rank": Mutant(
            ROW,
            "G.apply(linear(x_Nf, w_Df, b_D / 2))",
            "row: gradient of its bias: * exactly 0.50 x * divided once too often",
        ),
        "a bias on one rank": Mutant(
            ROW,
            "G.apply(linear(x_Nf, w_Df, b_D if dist.get_rank() == 0 else None))",
            "on rank 1, row: gradient of its bias: expected a tensor, found None",
        ),
        "half a bias": Mutant("+ b_D", "+ b_D / 2", "The bias was divided by the number of ranks"),
        "row without its bias": Mutant(" + b_D", "", "row's output: * The bias is missing"),
        "row minus its bias": Mutant("+ b_D", "- b_D", "The bias was subtracted"),
        "row without g": Mutant(
            ROW, "linear(x_Nf, w_Df) + b_D", "row's output: * This is each rank's own product"
        ),
        "row with f for g": Mutant(
            "G.apply(linear(x_Nf", "F.apply(linear(x_Nf", "row's output: * each rank's own product"
        ),
        "row without g and bias": Mutant(
            ROW, "linear(x_Nf, w_Df)", "the sum over ranks (G) and the bias are missing"
        ),
        "row with f": Mutant(
            ROW,
            f"F.apply({ROW.partition(' + ')[0]}) + b_D",
            "row: gradient of its x: * exactly 2.00 x the right one. It was summed over ranks, but",
        ),
        "row enters through f": Mutant(
            "linear(x_Nf, w_Df)",
            "linear(F.apply(x_Nf), w_Df)",
            "row: gradient of its x: * each rank has a part of its own",
        ),
        "row forgets to return": Mutant(f"return {ROW}", ROW, "row returns nothing: its last line"),
        "row outside autograd": Mutant(
            ROW,
            "G.apply(linear(x_Nf, w_Df).detach()) + b_D",
            "row: gradient of its x: * found None",
        ),
        "row sums twice": Mutant(
            "G.apply(linear(x_Nf, w_Df))",
            "G.apply(G.apply(linear(x_Nf, w_Df)))",
            "row's output: * The product was summed twice",
        ),
        "one rank skips the last": Mutant(
            f"return {ROW}",
            f"y = {ROW}\n    if dist.get_rank() == 0:\n"
            "        dist.broadcast(y.detach(), 0)\n    return y",
            "rank 0 enters broadcast of 160 B * Every rank must enter the same",
        ),
    },
}

OTHER_WAYS = {
    "a product with a backward of its own": (
        f"def column(x_ND, w_fD, b_f):\n    return {LINEAR}",
        """class Column(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x_ND, w_fD, b_f):
        ctx.save_for_backward(x_ND, w_fD)
        return x_ND @ w_fD.T + b_f

    @staticmethod
    def backward(ctx, dy_Nf):
        x_ND, w_fD = ctx.saved_tensors
        dx_ND = dy_Nf @ w_fD
        work = dist.all_reduce(dx_ND, async_op=True)
        dw_fD = dy_Nf.T @ x_ND
        work.wait()
        return dx_ND, dw_fD, dy_Nf.sum(0)


column = Column.apply""",
    ),
    "x itself": ("return x_ND.view_as(x_ND)", "return x_ND"),
    "a copy of x": ("return x_ND.view_as(x_ND)", "return x_ND.clone()"),
    "a setup_context": (
        "    def forward(ctx, x_ND):\n        return x_ND.view_as(x_ND)",
        "    def forward(x_ND):\n        return x_ND.view_as(x_ND)\n\n"
        "    @staticmethod\n    def setup_context(ctx, inputs, output):\n        pass",
    ),
    "a new tensor for the sum": (CLONE, "torch.zeros(part.shape, dtype=part.dtype) + part"),
    "a copy if it is contiguous": (
        CLONE,
        "part.clone() if part.is_contiguous() else part.contiguous()",
    ),
    "waited for by hand": (REDUCE, "    dist.all_reduce(total, async_op=True).wait()\n"),
    "with a group": (REDUCE, "    dist.all_reduce(total, group=dist.group.WORLD)\n"),
    "a transposed product": (LINEAR, "(w_fD @ F.apply(x_ND).T).T + b_f"),
    "a trailing None": ("return summed(dx_ND)", "return summed(dx_ND), None"),
    "addmm": (ROW, "G.apply(torch.addmm(torch.zeros(()).double(), x_Nf, w_Df.T)) + b_D"),
}
