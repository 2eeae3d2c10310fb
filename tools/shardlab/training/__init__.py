"""The optimizer step on a grid: complete gradients, master weights, and portable checkpoints."""
