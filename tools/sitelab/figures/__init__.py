"""Interactive figures: drawn here for readers without scripts, with data for the page's script.

A page marks the place with `<div class="figure" id="figure-memory">…</div>`. The numbers come from
`shardlab`'s arithmetic, which imports no torch, and from the committed results.
"""
