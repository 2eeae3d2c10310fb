"""The bytes that ranks send, counted at the dispatcher, and the formulas that they must equal."""
