"""The museum's rooms, each the test that shows its number."""
