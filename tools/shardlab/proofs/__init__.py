"""What was sent, counted where it is dispatched, beside the arithmetic that it must equal."""
