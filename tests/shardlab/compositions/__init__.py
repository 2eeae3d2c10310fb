"""The museum of compositions: where two parallelisms meet, and gradients go wrong in silence."""
