"""Proofs about schedules: that one is whole and ends; when stages idle, drawn."""
