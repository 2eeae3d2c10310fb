"""The pages that the bench writes: results and judged claims, and no page of another lab.

Their classes tell a reader that a claim was judged or that a row was measured, so that no other
page may use them.
"""

import re

LAB = "experiments/35-allreduce-costs"
_PAGE = re.compile(rf"{LAB}/(?:results/local/)?(?:CLAIMS|RESULTS)(?:\.es)?\.md")


def is_bench_page(uri: str) -> bool:
    """Return whether the bench writes the page with this path in the site.

    >>> is_bench_page("experiments/35-allreduce-costs/CLAIMS.es.md")
    True
    >>> is_bench_page("experiments/99-a-draft/CLAIMS.md")
    False
    """
    return _PAGE.fullmatch(uri) is not None
