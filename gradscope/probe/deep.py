"""Room for graphs so deep that a process begins with too small a stack to free them.

torch frees a chain of autograd nodes one after the other, until Python has looked at them: then (2.13, 2.14) it frees
each inside of the one before, at some 200 bytes of stack a node. The 8 MB that Linux begins with are used up at about
40,000 nodes, and the process ends without a word. The main thread's stack grows as far as its limit allows at that
moment, so that the limit is raised where a graph needs it.
"""

from __future__ import annotations

try:
    import resource
except ImportError:  # Windows, which sets the size of a stack when a program is built
    resource = None  # type: ignore[assignment]

BYTES_PER_NODE = 512
"""More than twice what was measured."""


def make_room(num_nodes: int) -> None:
    """Let the main thread's stack grow as far as a graph needs it that is this deep at most; never make it smaller."""
    if resource is None:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    wanted = num_nodes * BYTES_PER_NODE
    if soft == resource.RLIM_INFINITY or wanted <= soft:
        return
    resource.setrlimit(resource.RLIMIT_STACK, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))
