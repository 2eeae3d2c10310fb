"""What the sweeps say: latency, cost per byte, what a link is made of."""
