"""What a page draws: diagrams and formulas."""
