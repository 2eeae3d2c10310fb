"""The kernels beside other libraries: one training step by each, row by row of a table."""
