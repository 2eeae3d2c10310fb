"""What one GPU can tell by itself."""
