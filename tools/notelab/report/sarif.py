"""The report for an archive of scans: SARIF 2.1.0."""

import json
from typing import Any
from urllib.parse import quote

from notelab import __version__
from notelab.errors import escape_json
from notelab.report.finding import Finding
from notelab.report.outcome import Report
from notelab.rules.codes import RULES


def write(report: Report) -> str:
    """Return the findings as a SARIF log."""
    log = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "shardbook",
                        "version": __version__,
                        "rules": [{"id": code, "name": name} for code, name in RULES.items()],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "results": [_finding_to_result(finding) for finding in report.findings],
            }
        ],
    }
    return escape_json(json.dumps(log, indent=2, ensure_ascii=False)) + "\n"


def _finding_to_result(finding: Finding) -> dict[str, Any]:
    span = finding.span
    return {
        "ruleId": finding.code,
        "ruleIndex": list(RULES).index(finding.code),
        "level": "error",
        "message": {"text": "\n".join([finding.message, *finding.details])},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": quote(finding.filename)},
                    "region": {
                        "startLine": span.row,
                        "startColumn": span.column,
                        "endLine": span.end_row,
                        "endColumn": max(span.end_column, 1),
                    },
                }
            }
        ],
    }
