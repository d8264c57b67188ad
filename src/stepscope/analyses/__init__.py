"""One module per question: docstring, COLUMNS, one function of the module's name from a Trace to a table. Pure.

The folder is the registry: `trace.analyse(name)`, the command line, the HTTP routes and the reference docs read it.
"""
