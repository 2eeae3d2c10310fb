"""Proofs about schedules: that a schedule is complete and ends; its timeline and its picture."""
