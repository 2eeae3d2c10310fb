"""Drawn compositions train like one process, and the rooms of the museum show their faults."""
