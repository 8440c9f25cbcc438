"""One HTML file to send to others: complete without scripts, safe to open, the recording inside.

`write` and `html` make the report of one model, `read_back` takes the recording out of it again, and
`notebook` shows a recording in Jupyter.
"""

from gradscope.report.html.payload import read_back
from gradscope.report.html.report import html, write

__all__ = ["html", "read_back", "write"]
