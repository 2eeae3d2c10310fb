"""What mkdocs calls while it builds the site."""

import os

# Material's own end, in eight lines before each build; docs/reference/site.md says what is planned.
os.environ.setdefault("NO_MKDOCS_2_WARNING", "1")
