"""A transport for ranks of one host: collectives and messages through memory that they all map.

`link` is what an axis calls. Below it: `region` (the mapped file), `layout` (what lies where in
it), `collectives` (what is put in and taken out), `mailbox` (messages), `patience` (waiting).
"""

from shardlab.links.shared_memory.link import SharedMemoryLink

__all__ = ["SharedMemoryLink"]
