"""A lab opened: the evidence for what its pages cite, and which file each citation means."""
