"""What defines a lab: its file, its pages, its pins and its lock."""
