"""The page that shows a trace in a browser: live from a server on loopback, or as one HTML file.

`trace_index` makes one short row per record, which the page loads in blocks; `trace_source` reads a
file that may grow, and gives whole records and searches them; `app` serves both (ASGI). `page` puts
the files of `static/` together: plain modules, without a library or a build.
"""
