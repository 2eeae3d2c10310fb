"""`python -m shardlab.parity my_model.py:build`: prove that a sharding equals one process."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from math import isfinite
from typing import Any

try:
    from shardlab.parity.case import NAMES, Case, ParityError, list_cases, make_case, refuse
    from shardlab.parity.session import Result, Session
    from shardlab.parity.subject import Subject
except ModuleNotFoundError as missing:
    print(
        f"shardlab.parity: error: this Python has no {missing.name}: "
        "pip install 'shardbook[kernels]'",
        file=sys.stderr,
    )
    sys.exit(2)

NUMBERS: dict[str, tuple[float, str]] = {  # with their defaults
    "cases": (24, "the most compositions to try"),
    "ranks": (4, "the most ranks of one"),
    "seconds": (300.0, "begin no case after these"),
    "steps": (3, "optimizer steps of each case"),
    "tolerance": (1e-9, "relative difference"),
}


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return 0 if all is equal, 1 if something is not, 2 for bad input."""
    options = _parse(arguments)
    try:
        for name in NUMBERS:
            if getattr(options, name) <= 0:
                refuse("option", name=name, value=getattr(options, name))
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
    for name, (default, words) in NUMBERS.items():
        shown = f"{words} (%(default)g)"
        parser.add_argument(f"--{name}", type=type(default), default=default, help=shown)
    parser.add_argument("--seed", type=int, default=0, help="of the draws (0)")
    parser.add_argument("--case", help='one case, as JSON: {"tensor": 2, "pipeline": 2}')
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    return parser.parse_args(arguments)


def _prove(session: Session, options: argparse.Namespace) -> int:
    deadline = time.monotonic() + options.seconds
    cases = _choose(session.subject, options)
    results: list[Result] = []
    progress = not options.json and sys.stderr.isatty()
    for number, case in enumerate(cases, 1):
        if time.monotonic() > deadline:
            break
        if progress:
            print(f"\r\033[K{number}/{len(cases)}: {case}", end="", file=sys.stderr, flush=True)
        results.append(session.run(case))
        if results[-1].finding:
            results[-1] = session.explain(results[-1], deadline)
            break
    if progress:
        print("\r\033[K", end="", file=sys.stderr)
    if options.json:
        plain = [_to_json(options, result) for result in results]
        print(json.dumps({"model": options.model, "planned": len(cases), "results": plain}))
    else:
        print("\n".join(_describe(options, len(cases), results)))
    return 1 if results[-1].finding else 0


def _choose(subject: Subject, options: argparse.Namespace) -> list[Case]:
    supports = subject.supports
    if options.case is None:
        rows = len(subject.batch(0)[1])
        limits = {"count": options.cases, "ranks": options.ranks, "rows": rows}
        return list_cases(supports, **limits, seed=options.seed)
    try:
        settings, error = json.loads(options.case), ""
    except json.JSONDecodeError as wrong:
        settings, error = None, f" ({wrong})"
    if not isinstance(settings, dict):
        refuse("json", error=error)
    known = {*NAMES, *supports}
    if unknown := settings.keys() - known:
        refuse("unknown", name=min(unknown), known=", ".join(sorted(known)))
    return [make_case(settings, supports)]


def _again(options: argparse.Namespace, case: Case) -> str:
    steps = f" --steps {options.steps}" if options.steps != NUMBERS["steps"][0] else ""
    return f"python -m shardlab.parity {options.model} --case '{json.dumps(case.changes())}'{steps}"


def _describe(options: argparse.Namespace, planned: int, results: list[Result]) -> list[str]:
    *_, last = results
    equal = [r.differences for r in results if not r.finding and not r.refused]
    refused = [f"refused on {r.case}: {r.refused}" for r in results if r.refused]
    worst = max((x for differences in equal for x in differences.values()), default=0.0)
    lines = [
        f"{options.model}: {len(equal)} of {len(results)} compositions equal one process in fp64, "
        f"in {sum(map(len, equal))} comparisons; the largest difference is {worst:.1e}"
    ]
    if finding := last.finding:
        others = f", and so are {finding.others} other parameters" if finding.others else ""
        error = f" (off by {finding.error:.1e}{others})" if isfinite(finding.error) else others
        return [
            *lines, *refused[:3], f"differs on {last.case}", f"  seen:  {finding.what}{error}",
            f"  cause: {finding.cause}", f"  again: {_again(options, last.case)}",
        ]  # fmt: skip
    if len(results) < planned:
        lines.append(f"{planned - len(results)} cases were not begun: raise --seconds")
    return lines + refused[:3]


def _to_json(options: argparse.Namespace, result: Result) -> dict[str, Any]:
    finding = result.finding and asdict(result.finding)
    if finding and not isfinite(finding["error"]):
        finding["error"] = None
    return {
        "case": result.case.changes(), "comparisons": len(result.differences),
        "worst": max(result.differences.values(), default=None), "finding": finding,
        "refused": result.refused or None, "again": _again(options, result.case),
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
