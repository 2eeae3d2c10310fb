"""A unit's parameters end to end in one tensor, each rank with its share."""
