"""From a grid's gradients to an optimizer's step, and checkpoints that another grid can load."""
