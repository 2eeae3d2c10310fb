"""What mermaid2 adds to a page with diagrams, without letting it parse the page.

mermaid2 reads every page that has the word in it as HTML and writes it anew: slow, and what it
writes isn't what was cleaned. It only looks for diagrams and puts scripts at the end of the body,
so it is handed a body with as many diagrams. Of its scripts the page gets the one with an address:
the other sets what docs/assets/javascripts/diagrams.js sets too, and the policy would refuse it.
"""

import re

_DIAGRAM = '<div class="mermaid"'
_SCRIPT = re.compile(r"<script src=[^>]*></script>")


def skeleton(output: str) -> str:
    """Return a body that holds nothing but the page's diagrams, empty."""
    diagrams = output.count(_DIAGRAM)
    return f"<body>{(_DIAGRAM + '></div>') * diagrams}</body>" if diagrams else ""


def added(output: str, skeleton: str) -> str:
    """Return the page with the script that mermaid2 put into its skeleton by address."""
    before, end, after = output.rpartition("</body>")
    return before + "".join(_SCRIPT.findall(skeleton)) + end + after if end else output
