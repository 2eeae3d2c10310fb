"""From what is asked to what is measured: the plan, the launches, the ranks, what a run shows."""
