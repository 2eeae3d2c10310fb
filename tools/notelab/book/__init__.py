"""Opens labs: reads their pages, and gathers the evidence for what these cite."""
