"""`python -m shardlab.parity my_model.py:build`: prove that a sharding equals one process."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from typing import Any

try:
    from shardlab.parity.case import NAMES, Case, list_cases, make_case
    from shardlab.parity.session import Result, Session
    from shardlab.parity.subject import ParityError, Subject
except ModuleNotFoundError as missing:
    print(
        f"shardlab.parity: error: this Python has no {missing.name}: "
        "pip install 'shardbook[kernels]'",
        file=sys.stderr,
    )
    sys.exit(2)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return 0 if all is equal, 1 if something is not, 2 for bad input."""
    options = _parse(arguments)
    try:
        subject = Subject.parse(options.model)
        session = Session(subject, steps=options.steps, tolerance=options.tolerance)
        try:
            return _prove(session, options)
        finally:
            session.close()
    except ParityError as error:
        if options.json:
            print(json.dumps({"model": options.model, "error": str(error)}))
        print(f"shardlab.parity: error: {error}", file=sys.stderr)
        return 2


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m shardlab.parity",
        description="Compare a model on grids of CPU processes with one process, in fp64.",
    )
    parser.add_argument("model", help="my_model.py:build")
    parser.add_argument("--cases", type=int, default=24, help="the most compositions to try (24)")
    parser.add_argument("--ranks", type=int, default=4, help="the most ranks of one (4)")
    parser.add_argument(
        "--seconds", type=float, default=300, help="begin no case after these (300)"
    )
    parser.add_argument("--steps", type=int, default=3, help="optimizer steps of each case (3)")
    parser.add_argument("--tolerance", type=float, default=1e-9, help="relative difference (1e-9)")
    parser.add_argument("--seed", type=int, default=0, help="of the draws (0)")
    parser.add_argument("--case", help='one case, as JSON: {"tensor": 2, "pipeline": 2}')
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    return parser.parse_args(arguments)


def _prove(session: Session, options: argparse.Namespace) -> int:
    deadline = time.monotonic() + options.seconds
    cases = _choose(session.subject, options)
    results: list[Result] = []
    for number, case in enumerate(cases, 1):
        if time.monotonic() > deadline:
            break
        if not options.json and sys.stderr.isatty():
            print(f"\r\033[K{number}/{len(cases)}: {case}", end="", file=sys.stderr, flush=True)
        session.limit = max(10.0, min(120.0, deadline - time.monotonic()))
        results.append(session.run(case))
        if results[-1].finding:
            results[-1] = session.explain(results[-1], deadline)
            break
    if not options.json and sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    failed = next((result for result in results if result.finding), None)
    print(json.dumps(_as_json(options, cases, results)) if options.json else
          _describe(options, cases, results, failed))  # fmt: skip
    return 1 if failed else 0


def _choose(subject: Subject, options: argparse.Namespace) -> list[Case]:
    supports = subject.supports
    if options.case is None:
        rows = len(subject.batch(0)[1])
        limits = {"count": options.cases, "ranks": options.ranks, "rows": rows}
        return list_cases(supports, **limits, seed=options.seed)
    try:
        settings = json.loads(options.case)
    except json.JSONDecodeError as error:
        raise ParityError(f"--case is no JSON: {error}") from None
    unknown = set(settings) - NAMES - set(supports)
    if unknown:
        known = ", ".join(sorted(NAMES | set(supports)))
        raise ParityError(f"--case has {min(unknown)!r}; choose from {known}")
    return [make_case(settings, supports)]


def _again(options: argparse.Namespace, case: Case) -> str:
    steps = f" --steps {options.steps}" if options.steps != 3 else ""
    return f"python -m shardlab.parity {options.model} --case '{json.dumps(case.changes())}'{steps}"


def _describe(
    options: argparse.Namespace, cases: list[Case], results: list[Result], failed: Result | None
) -> str:
    equal = [r for r in results if not r.finding and not r.refused]
    refused = [r for r in results if r.refused]
    comparisons = sum(len(result.differences) for result in equal)
    worst = max((x for r in equal for x in r.differences.values()), default=0.0)
    lines = [
        f"{options.model}: {len(equal)} of {len(results)} compositions equal one process in fp64, "
        f"in {comparisons} comparisons; the largest difference is {worst:.1e}"
    ]
    if len(results) < len(cases) and not failed:
        lines.append(f"{len(cases) - len(results)} cases were not begun: raise --seconds")
    lines += [f"refused on {r.case}: {r.refused}" for r in refused[:3]]
    if failed and (finding := failed.finding):
        others = f", and so are {finding.others} other parameters" if finding.others else ""
        error = f" (off by {finding.error:.1e}{others})" if finding.error < float("inf") else others
        lines += [
            f"differs on {failed.case}",
            f"  seen:  {finding.what}{error}",
            f"  cause: {finding.cause}",
            f"  again: {_again(options, failed.case)}",
        ]
    return "\n".join(lines)


def _as_json(
    options: argparse.Namespace, cases: list[Case], results: list[Result]
) -> dict[str, Any]:
    def plain(result: Result) -> dict[str, Any]:
        finding = result.finding and asdict(result.finding)
        if finding and finding["error"] == float("inf"):
            finding["error"] = None
        return {
            "case": result.case.changes(), "comparisons": len(result.differences),
            "worst": max(result.differences.values(), default=None), "finding": finding,
            "refused": result.refused or None, "again": _again(options, result.case),
        }  # fmt: skip

    return {"model": options.model, "planned": len(cases), "results": [plain(r) for r in results]}


if __name__ == "__main__":
    sys.exit(main())
