"""Data parallelism with buckets: wrong answers by the sentence that they break, and right ones."""

from __future__ import annotations

from tests.shardlab.labs.mutants.mutant import Mutant

HOOK = "            self.start()\n"
RESET = "        self.ready = 0\n"
START = "        self.work = dist.all_reduce(self.flat, async_op=True)\n"
WAIT = "        self.work.wait()\n"
MEAN = "        self.flat /= dist.get_world_size()\n"
ADD = "        parameter.register_post_accumulate_grad_hook(self.one_more)\n"
OPENS = "if not self.buckets or self.buckets[-1].bytes + p.nbytes > bucket_bytes:"
FULL = "self.buckets[-1].bytes + p.nbytes > bucket_bytes"
ORDER = "reversed([p for p in model.parameters() if p.requires_grad])"
COPY = "p.grad.copy_(mean.view_as(p))"

CONTRACT = {
    "Averages the gradients of a model of which every rank has a copy, while backward runs.": {
        "the sum of gradients": Mutant(
            MEAN, "", "exactly 2.00 x the right one. It is the sum: divide by the number of ranks"
        ),
        "divided twice": Mutant(
            MEAN, MEAN * 2, "exactly 0.50 x the right one. It is half * divided once too often"
        ),
        "divided by the bucket": Mutant(
            MEAN, "        self.flat /= len(self.parameters)\n", "Only the factor is wrong"
        ),
        "not sent": Mutant(
            START,
            "        self.work = dist.all_reduce(self.flat.clone(), async_op=True)\n",
            "It is this rank's own, divided by the number of ranks: nothing was added to it",
        ),
        "sent twice": Mutant(START, START * 2, "is sent once"),
        "zeros": Mutant(
            "self.flat = torch.cat([p.grad.flatten()",
            "self.flat = torch.cat([0 * p.grad.flatten()",
            "exactly 0.00 x the right one. It is missing on this rank",
        ),
        "only rank 0 sums": Mutant(
            "dist.all_reduce(self.flat, async_op=True)",
            "dist.reduce(self.flat, 0, async_op=True)",
            "found reduce of 400 B. Send each bucket by one all-reduce",
        ),
        "the largest gradient": Mutant(
            "dist.all_reduce(self.flat, async",
            "dist.all_reduce(self.flat, dist.ReduceOp.MAX, async",
            "It is the larger of the ranks' numbers; expected their sum",
        ),
        "sent in fp32": Mutant(
            "for p in self.parameters])\n        self.work",
            "for p in self.parameters]).float()\n        self.work",
            "found all_reduce of 200 B. * half of their bytes: was something converted to fp32",
        ),
        "all after backward": Mutant(
            HOOK,
            "            self.finish = lambda: (self.start(), Bucket.finish(self))\n",
            "0 of 1 buckets left during backward, the others after it",
        ),
        "weights averaged": Mutant(
            "        for bucket in self.buckets:\n            bucket.finish()",
            "        for bucket in self.buckets:\n            bucket.finish()\n"
            "            for p in bucket.parameters:\n                dist.all_reduce(p.detach())",
            "is sent once",
        ),
    },
    "So they go into buckets from the last of `model.parameters()` to the first:": {
        "from the first": Mutant(
            ORDER,
            "[p for p in model.parameters() if p.requires_grad]",
            "buckets were filled from the first parameter: begin with the last",
        ),
        "large ones first": Mutant(
            ORDER,
            "sorted([p for p in model.parameters() if p.requires_grad], key=lambda p: -p.nbytes)",
            "From the last parameter on",
        ),
    },
    "a bucket is closed when one more gradient would make it larger than `bucket_bytes`,": {
        "closed when reached": Mutant(
            FULL,
            "self.buckets[-1].bytes >= bucket_bytes",
            "closed when it was reached or passed: close it before",
        ),
        "one more than fits": Mutant(
            FULL, "self.buckets[-1].bytes > bucket_bytes", "one gradient more than fits"
        ),
        "closed when full exactly": Mutant(
            FULL,
            "self.buckets[-1].bytes + p.nbytes >= bucket_bytes",
            "exactly full still belongs in it: compare with >",
        ),
        "a message a parameter": Mutant(OPENS, "if True:", "Each gradient was sent by itself"),
        "one bucket": Mutant(OPENS, "if not self.buckets:", "All gradients were sent as one"),
        "a size of its own": Mutant(
            FULL, FULL.replace("bucket_bytes", "96"), "with buckets of at most 1048576 B: expected"
        ),
        "25 MiB": Mutant(
            FULL, FULL.replace("bucket_bytes", "(25 << 20)"), "All gradients were sent as one"
        ),
        "numbers for bytes": Mutant(
            FULL,
            "sum(q.numel() for q in self.buckets[-1].parameters) + p.numel() > bucket_bytes",
            "All gradients were sent as one",
        ),
        "a number less": Mutant(
            FULL, FULL.replace("bucket_bytes", "(bucket_bytes - 8)"), "full still belongs in it"
        ),
        "fp32 sizes": Mutant(
            FULL,
            "4 * sum(q.numel() for q in [*self.buckets[-1].parameters, p]) > bucket_bytes",
            "From the last parameter on",
        ),
    },
    "a gradient that is larger by itself has a bucket of its own.": {
        "larger ones join": Mutant(
            FULL, f"{FULL} >= p.nbytes", "A gradient larger than a bucket joined others"
        ),
        "larger ones stay out": Mutant(
            f"            {OPENS}",
            "            if p.nbytes > bucket_bytes:\n                continue\n"
            f"            {OPENS}",
            "A gradient larger than a bucket was left out: it has a bucket of its own",
        ),
        "larger ones refused": Mutant(
            f"            {OPENS}",
            f"            assert p.nbytes <= bucket_bytes\n            {OPENS}",
            "in __init__: AssertionError",
        ),
    },
    "A parameter that needs no gradient is in none.": {
        "a hook on a frozen one": Mutant(
            " if p.requires_grad", "", "in add: RuntimeError: cannot register a hook"
        ),
        "frozen ones take room": Mutant(
            " if p.requires_grad]):\n",
            "]):\n            if not p.requires_grad:\n                if self.buckets:\n"
            "                    self.buckets[-1].bytes += p.nbytes\n"
            "                else:\n                    self.buckets.append(Bucket())\n"
            "                    self.buckets[-1].bytes += p.nbytes\n                continue\n",
            "The parameter that needs no gradient takes up room: leave it out",
        ),
        "frozen ones thawed": Mutant(
            "        self.buckets = []\n",
            "        self.buckets = []\n        model.requires_grad_(True)\n",
            "6.bias needs no gradient, and has got one",
        ),
    },
    "have each start its all-reduce once all its gradients are there.": {
        "with the first gradient": Mutant(
            "self.ready == len(self.parameters)",
            "self.ready == 1",
            "NoneType* Is it a gradient that isn't there yet? A bucket may start when",
        ),
        "with the last but one": Mutant(
            "self.ready == len(self.parameters)",
            "self.ready == max(1, len(self.parameters) - 1)",
            "NoneType* Is it a gradient that isn't there yet? A bucket may start when",
        ),
        "with the next bucket": Mutant(
            HOOK,
            "            [bucket.start() for bucket in Bucket.__dict__.get('full', [])]\n"
            "            Bucket.full = [self]\n"
            "            self.finish = lambda: (\n"
            "                self in Bucket.full and (Bucket.full.clear(), self.start()),\n"
            "                Bucket.finish(self),\n            )\n",
            "buckets left during backward, the others after it",
        ),
        "all with the last": Mutant(
            HOOK,
            "            Bucket.full = [*getattr(Bucket, 'full', []), self]\n"
            "            if sum(len(b.parameters) for b in Bucket.full) in (1, 7):\n"
            "                [b.start() for b in Bucket.full]\n                Bucket.full = []\n",
            "bucket 0 left when the gradient of",
        ),
        "with each gradient": Mutant(
            "        if self.ready == len(self.parameters):\n            self.start()\n",
            "        self.start()\n",
            "NoneType* Is it a gradient that isn't there yet? A bucket may start when",
        ),
        "waits in the hook": Mutant(
            START, START + WAIT, "backward doesn't end before rank 1 has begun*(async_op=True)"
        ),
        "without async_op": Mutant(
            START + "\n    def finish(self):\n" + WAIT,
            "        dist.all_reduce(self.flat)\n\n    def finish(self):\n",
            "In the hook only start it (async_op=True); wait for it in finish",
        ),
        "polls in the hook": Mutant(
            START,
            START + "        while not self.work.is_completed():\n            pass\n",
            "In the hook only start it (async_op=True); wait for it in finish",
        ),
        "a message in __init__": Mutant(
            "        self.buckets = []\n",
            "        self.buckets = []\n"
            "        [dist.broadcast(p.data, 0) for p in model.parameters()]\n",
            "Replicas.__init__: expected nothing on the wire, found broadcast",
        ),
        "a hook on each gradient": Mutant(
            "register_post_accumulate_grad_hook",
            "register_hook",
            "NoneType* Is it a gradient that isn't there yet? A bucket may start when",
        ),
    },
    "wait, write the means into each `p.grad`, be ready for the next step.": {
        "not waited for": Mutant(WAIT, "", "doesn't wait for the all-reduces"),
        "divided before the wait": Mutant(
            WAIT + MEAN, MEAN + WAIT, "It was divided before the all-reduce had ended: wait first"
        ),
        "only the first waited for": Mutant(
            "        for bucket in self.buckets:\n            bucket.finish()",
            "        self.buckets[0].work.wait()\n        for bucket in self.buckets:\n"
            "            bucket.work = type('Done', (), {'wait': lambda _: None})()\n"
            "            bucket.finish()",
            "nothing was added to it, or it was not waited for",
        ),
        "not copied back": Mutant(
            COPY, "mean.view_as(p)", "this rank's own: its bucket was not sent, or not"
        ),
        "written to the weights": Mutant(
            COPY, "p.data.copy_(mean.view_as(p))", "It is this rank's own: its bucket was not sent"
        ),
        "copied into a copy": Mutant(
            COPY, "p.grad.clone().copy_(mean.view_as(p))", "It is this rank's own: its bucket was"
        ),
        "added": Mutant(
            COPY, "p.grad.add_(mean.view_as(p))", "The mean was added to this rank's own gradient"
        ),
        "only the last of a bucket": Mutant(
            f"            {COPY}\n",
            f"            pass\n        {COPY}\n",
            "It is this rank's own: its bucket was not sent",
        ),
        "only the first bucket": Mutant(
            "        for bucket in self.buckets:\n            bucket.finish()",
            "        self.buckets[0].finish()",
            "gradient of * It is this rank's own: its bucket was not sent",
        ),
        "the wrong way round": Mutant(
            "self.parameters, means, strict",
            "self.parameters, means[::-1], strict",
            "in finish: RuntimeError: shape",
        ),
        "not ready for the next step": Mutant(
            RESET, "", "Nothing was sent: is what counts the gradients reset in finish?"
        ),
        "the first step's gradients": Mutant(
            COPY,
            "self.kept = getattr(self, 'kept', {})\n"
            "            self.kept.setdefault(p, p.grad).copy_(mean.view_as(p))",
            "step 1, * It is this rank's own: its bucket was not sent",
        ),
        "the first step's sum": Mutant(
            "        self.flat = torch.cat([p.grad.flatten() for p in self.parameters])\n",
            "        if not hasattr(self, 'flat'):\n"
            "            self.flat = torch.cat([p.grad.flatten() for p in self.parameters])\n",
            "step 1, * It is the mean of the step before: begin each step with its own",
        ),
        "no finish": Mutant(
            "    def finish(self):\n        for b",
            "    def ready(self):\n        for b",
            "no attribute 'finish'",
        ),
    },
}

OTHER_WAYS = {
    "another tensor for a gradient": (COPY, "p.grad = mean.view_as(p)"),
    "a factor before the sum": (
        START + "\n    def finish(self):\n" + WAIT + MEAN,
        "        self.flat /= dist.get_world_size()\n" + START + "\n    def finish(self):\n" + WAIT,
    ),
    "waits through a future": (WAIT, "        self.work.get_future().wait()\n"),
    "a flat buffer from the start": (
        "self.flat = torch.cat([p.grad.flatten() for p in self.parameters])",
        "self.flat = torch.empty(self.bytes // 8).double()\n"
        "        torch.cat([p.grad.flatten() for p in self.parameters], out=self.flat)",
    ),
    "counts down": (
        "        self.ready += 1\n        if self.ready == len(self.parameters):\n",
        "        self.ready -= 1\n        if self.ready % len(self.parameters) == 0:\n",
    ),
    "hooks of a lambda": (ADD, ADD.replace("self.one_more", "lambda p: self.one_more(p)")),
    "finishes the last first": ("for bucket in self.buckets:", "for bucket in self.buckets[::-1]:"),
}
