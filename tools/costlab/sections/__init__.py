"""What is measured, a section each, and what sections share."""
