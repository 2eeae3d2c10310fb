"""Wrong answers to lab 00b, each the solution with one thing changed, and other right answers.

`CONTRACT` has them by part, then by the sentence of the skeleton's docstrings which they break.
"""

from tests.shardlab.labs.mutants import linears, replicas, unit

PARTS = {"linears": linears, "replicas": replicas, "unit": unit}
MUTANTS = {
    (part, name): mutant
    for part, module in PARTS.items()
    for mutants in module.CONTRACT.values()
    for name, mutant in mutants.items()
}
OTHER_WAYS = {
    (part, name): change
    for part, module in PARTS.items()
    for name, change in module.OTHER_WAYS.items()
}
