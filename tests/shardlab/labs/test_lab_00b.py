"""Lab 00b: the solution is right, and each usual mistake is told in the words that mend it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from pages.blocks import LANGUAGES, lab_page
from pages.runs.lab_00b import (
    ALONE,
    BIAS_TWICE,
    FILES,
    LAB,
    PARTS,
    WHOLE_AFTER_FORWARD,
    Mistake,
    grade_code,
    grade_mistake,
    grader,
    read_solution,
)

MISTAKES = {
    "a bias on each rank": BIAS_TWICE,
    "whole after forward": WHOLE_AFTER_FORWARD,
    "nobody sums dX": Mistake(
        "linears",
        "return summed(dx_ND)",
        "return dx_ND",
        "on rank 0, F.backward: off by up to * It is the input, unchanged: nothing was all-reduced",
    ),
    "f sums forward": Mistake(
        "linears",
        "return x_ND.view_as(x_ND)",
        "return summed(x_ND)",
        "on rank 0, F.forward: off by up to * It is the sum over ranks, but here each",
    ),
    "g sums backward": Mistake(
        "linears",
        "return dy_ND",
        "return summed(dy_ND)",
        "on rank 0, G.backward: off by up to * It is the sum over ranks",
    ),
    "a contiguous copy is summed, and forgotten": Mistake(
        "linears",
        "    dist.all_reduce(total)\n    return total",
        "    dist.all_reduce(part.contiguous())\n    return part",
        "F.backward: off by up to * only a copy was, which was not returned",
    ),
    "in place": Mistake(
        "linears",
        "return summed(dx_ND)",
        "return dx_ND.copy_(summed(dx_ND))",
        "what F.backward was given, afterwards: * works in place: clone first",
    ),
    "the mean": Mistake(
        "linears",
        "    return total",
        "    return total / 2",
        "F.backward: off by up to *; its norm is exactly 0.50 x the right one. It is the mean",
    ),
    "summed twice": Mistake(
        "linears",
        "    dist.all_reduce(total)\n",
        "    dist.all_reduce(total)\n    dist.all_reduce(total)\n",
        "F.backward: off by up to *; its norm is exactly 2.00 x the right one. That is none",
    ),
    "gathered and added by hand": Mistake(
        "linears",
        "    dist.all_reduce(total)\n",
        "    parts = [torch.empty_like(total) for _ in range(2)]\n"
        "    dist.all_gather(parts, total)\n    total = parts[0] + parts[1]\n",
        "F.backward: expected all_reduce of 96 B on the wire, found all_gather of 192 B",
    ),
    "column without f": Mistake(
        "linears",
        "linear(F.apply(x_ND), w_fD, b_f)",
        "linear(x_ND, w_fD, b_f)",
        "column: gradient of its x: * It is this rank's part only: the sum over ranks",
    ),
    "column gathers": Mistake(
        "linears",
        "return linear(F.apply(x_ND), w_fD, b_f)",
        "y = linear(F.apply(x_ND), w_fD, b_f)\n"
        "    parts = [torch.empty_like(y) for _ in range(2)]\n"
        "    dist.all_gather(parts, y)\n    return torch.cat(parts, 1)",
        "column's output: expected shape [3, 3], found [3, 6]. It was gathered",
    ),
    "column gathers, and forgets it": Mistake(
        "linears",
        "return linear(F.apply(x_ND), w_fD, b_f)",
        "y = linear(F.apply(x_ND), w_fD, b_f)\n"
        "    parts = [torch.empty_like(y) for _ in range(2)]\n"
        "    dist.all_gather(parts, y)\n    return y",
        "column, forward: expected nothing on the wire, found all_gather of 144 B. x is whole",
    ),
    "row without g": Mistake(
        "linears",
        "G.apply(linear(x_Nf, w_Df)) + b_D",
        "linear(x_Nf, w_Df) + b_D",
        "row's output: off by up to * This is each rank's own product",
    ),
    "row with f": Mistake(
        "linears",
        "G.apply(linear(x_Nf, w_Df)) + b_D",
        "F.apply(G.apply(linear(x_Nf, w_Df))) + b_D",
        "row: gradient of its x: *; its norm is exactly 2.00 x the right one. It was summed",
    ),
    "outside autograd": Mistake(
        "linears",
        "G.apply(linear(x_Nf, w_Df)) + b_D",
        "G.apply(linear(x_Nf, w_Df).detach()) + b_D",
        "row: gradient of its x: expected a tensor, found None. No gradient reaches it",
    ),
    "larger on one rank": Mistake(
        "linears",
        "    dist.all_reduce(total)\n",
        "    dist.all_reduce(total if dist.get_rank() else torch.zeros(99))\n",
        "rank 0 enters all_reduce of 396 B (its collective 1), and rank 1 all_reduce of 96 B",
    ),
    "one rank skips the last": Mistake(
        "linears",
        "return G.apply(linear(x_Nf, w_Df)) + b_D",
        "y = G.apply(linear(x_Nf, w_Df)) + b_D\n    if dist.get_rank() == 0:\n"
        "        dist.broadcast(y.detach(), 0)\n    return y",
        "rank 0 enters broadcast of 144 B (its collective 5), and rank 1 has finished without it",
    ),
    "one rank fails": Mistake(
        "linears",
        "return linear(F.apply(x_ND), w_fD, b_f)",
        "return linear(F.apply(x_ND), w_fD, b_f[: 3 - dist.get_rank()])",
        "on rank 1, linears.py:*, in column: RuntimeError: ",
    ),
    "one rank dies": Mistake(
        "linears",
        "return linear(F.apply(x_ND), w_fD, b_f)",
        "return linear(F.apply(x_ND), w_fD, b_f) if dist.get_rank() else __import__('os')._exit(3)",
        "on rank 0, its process ended, with exit code 3",
    ),
    "no Python": Mistake("linears", "import torch\n", "import torch as\n", "SyntaxError: "),
    "the sum of gradients": Mistake(
        "replicas",
        "        self.flat /= dist.get_world_size()\n",
        "",
        "step 0, gradient of 0.weight: *; its norm is exactly 2.00 x the right one. It is the sum",
    ),
    "divided twice": Mistake(
        "replicas",
        "self.flat /= dist.get_world_size()",
        "self.flat /= dist.get_world_size() ** 2",
        "step 0, gradient of 0.weight: *; its norm is exactly 0.50 x the right one. It is half",
    ),
    "not copied back": Mistake(
        "replicas",
        "p.grad.copy_(mean.view_as(p))",
        "mean.view_as(p)",
        "step 0, gradient of 0.weight: * It is this rank's own: its bucket was not sent, or not",
    ),
    "a message a parameter": Mistake(
        "replicas",
        "if not self.buckets or self.buckets[-1].bytes + p.nbytes > bucket_bytes:",
        "if True:",
        "step 0: expected all_reduce of 168 B + all_reduce of 240 B + all_reduce of 160 B on the "
        "wire, found all_reduce of 24 B + * not one each",
    ),
    "one more than fits": Mistake(
        "replicas",
        "self.buckets[-1].bytes + p.nbytes > bucket_bytes",
        "self.buckets[-1].bytes > bucket_bytes",
        "step 0: expected all_reduce of 168 B + * found all_reduce of 408 B",
    ),
    "all after backward": Mistake(
        "replicas",
        "            self.start()\n",
        "            self.finish = lambda: (self.start(), Bucket.finish(self))\n",
        "step 0: 0 of 3 buckets left during backward, the others after it",
    ),
    "not ready for the next step": Mistake(
        "replicas",
        "        self.ready = 0\n",
        "",
        "step 1, gradient of 0.weight: off by up to ",
    ),
    "a frozen parameter in a bucket": Mistake(
        "replicas",
        " if p.requires_grad",
        "",
        "replicas.py:*, in add: RuntimeError: cannot register a hook",
    ),
    "a shard that is a view": Mistake(
        "unit",
        ".clone()",
        "",
        "the shard has 312 B, but its storage has 624: a chunk is a view",
    ),
    "the module as it was": Mistake(
        "unit",
        'module.to("meta")',
        "module",
        "Unit.__init__ leaves 616 B in memory in addition to the shard's 312: the module's own",
    ),
    "the flat tensor kept": Mistake(
        "unit",
        'self.module = module.to("meta")',
        'self.module, self.flat = module.to("meta"), flat',
        "Unit.__init__ leaves 624 B in memory in addition to the shard's 312",
    ),
    "not divided": Mistake(
        "unit",
        "return piece / dist.get_world_size()",
        "return piece",
        "step 0, the shard's gradient: *; its norm is exactly 2.00 x the right one. It is the sum",
    ),
    "all-reduced for reduce-scattered": Mistake(
        "unit",
        "dist.reduce_scatter_single(piece, grad.contiguous())",
        "dist.all_reduce(grad)\n        piece = grad.chunk(2)[dist.get_rank()]",
        "step 0, backward: expected all_gather of 624 B + reduce_scatter of 624 B on the wire, "
        "found all_gather of 624 B + all_reduce of 624 B. * twice as much",
    ),
    "whole after backward": Mistake(
        "unit",
        "whole.register_hook(lambda _: again.clear())",
        "self.again = again",
        "step 0: after backward 624 B of what was gathered are still in memory",
    ),
    "gathered for each weight": Mistake(
        "unit",
        "            if not again:\n                again.append",
        "            if again.clear() is None:\n                again.append",
        "step 0, backward: expected all_gather of 624 B + reduce_scatter of 624 B on the wire, "
        "found all_gather of 624 B + all_gather of 624 B",
    ),
    "gathered outside autograd": Mistake(
        "unit",
        "        whole.register_hook(lambda _: again.clear())",
        "        whole.detach_()",
        "step 0, the output: autograd can't go back from it",
    ),
}

OTHER_WAYS = {
    "a product with a backward of its own": Mistake(
        "linears",
        "def column(x_ND, w_fD, b_f):\n    return linear(F.apply(x_ND), w_fD, b_f)",
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
        "right",
    ),
    "another tensor for a gradient": Mistake(
        "replicas",
        "p.grad.copy_(mean.view_as(p))",
        "p.grad = mean.view_as(p)",
        "right",
    ),
    "gathered as a list": Mistake(
        "unit",
        "dist.all_gather_single(whole, shard)",
        "dist.all_gather([*whole.chunk(dist.get_world_size())], shard)",
        "right",
    ),
}


def matches(message: str, pattern: str) -> bool:
    return re.search(".*".join(map(re.escape, pattern.split("*"))), message) is not None


def test_the_solution_is_the_same_in_both_languages_and_its_linears_are_right(
    tmp_path: Path,
) -> None:
    for part in PARTS:
        assert len({read_solution(part, language) for language in LANGUAGES}) == 1
    assert grade_code("linears", read_solution("linears"), tmp_path) == "right"


ONE, TWO = ("all_reduce", 8), ("all_gather", 16)
RIGHT, RAISED, DIED = ("right", ""), ("raised", "closed by peer"), ("died", "exit code 3")


@pytest.mark.parametrize(
    ("first", "second", "beginning"),
    [
        (([ONE], None), ([ONE], None), ""),
        (([ONE], RIGHT), ([], None), ""),  # the second is on its way
        (([ONE], RIGHT), ([ONE], RIGHT), "right"),
        (([ONE], RIGHT), ([ONE, TWO], None), "rank 1 enters all_gather of 16 B (its collective 2)"),
        (([ONE, TWO], RAISED), ([ONE], RIGHT), "rank 0 enters all_gather of 16 B"),
        (([ONE, ONE], None), ([ONE, TWO], RAISED), "rank 0 enters all_reduce of 8 B (its coll"),
        (([ONE], RAISED), ([ONE], DIED), "on rank 1, exit code 3"),
        (([ONE, TWO], RAISED), ([ONE], DIED), "on rank 1, exit code 3"),
    ],
)
def test_the_rank_that_is_the_cause_is_named_and_not_the_one_that_waits_for_it(
    first: Any, second: Any, beginning: str
) -> None:
    heard = [grader().Heard(rank, *state) for rank, state in enumerate((first, second))]
    verdict = grader().verdict(heard)
    assert verdict.startswith(beginning) and bool(verdict) == bool(beginning)


@pytest.mark.ci
@pytest.mark.parametrize("part", PARTS[1:])
def test_the_solution_is_right(part: str, tmp_path: Path) -> None:
    assert grade_code(part, read_solution(part), tmp_path) == "right"


def test_a_collective_that_one_rank_enters_is_told_and_not_waited_for(tmp_path: Path) -> None:
    message = grade_mistake(ALONE, tmp_path)
    assert matches(message, ALONE.message), message


@pytest.mark.ci
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told_in_the_words_that_mend_it(name: str, tmp_path: Path) -> None:
    message = grade_mistake(MISTAKES[name], tmp_path)
    assert matches(message, MISTAKES[name].message), message
    assert "\n" not in message


@pytest.mark.ci
@pytest.mark.parametrize("name", OTHER_WAYS)
def test_what_the_docstrings_leave_open_may_be_done_otherwise(name: str, tmp_path: Path) -> None:
    assert grade_mistake(OTHER_WAYS[name], tmp_path) == OTHER_WAYS[name].message


@pytest.mark.ci
def test_a_loop_that_does_not_end_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grader(), "PATIENCE", 2.0)  # it is without end, so any time is too short
    code = read_solution("linears").replace(
        "return dy_ND", "\n        while True:\n            pass"
    )
    assert matches(
        grade_code("linears", code, tmp_path), "rank * has not answered for 2 s; so far it has"
    )


@pytest.mark.ci
@pytest.mark.parametrize("part", PARTS)
def test_a_skeleton_is_still_to_be_written_and_says_what_to_read_which_the_page_cites(
    part: str,
) -> None:
    assert grader().grade(part).startswith("still to be written: ")
    code = (FILES / f"{part}.py").read_text("utf-8")
    missing = re.findall(r'NotImplementedError\(\s*"(.*?): read (.*?)"', code)
    assert len(missing) == code.count("raise NotImplementedError")
    text = lab_page(LAB, "en").read_text("utf-8")
    for what, names in missing:
        for name in re.split(r",? and |, ", names):
            assert f"`{name}`" in text, (what, name)
