"""What tensor parallelism cuts: what crosses both ways, linears, vocabulary, and parameters."""
