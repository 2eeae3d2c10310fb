"""What a lab asks: its file, its pages, its pins and its lock."""
