"""Finding, checking, loading and composing plugins.

`discovery` reads names and integers from metadata and imports nothing; `loading` imports one plugin when it is first
used and keeps what went wrong; `composition` joins one family, one arch and the active policies. A plugin that fails is
a listed state and takes down nothing else, with one exception that no host can contain: a plugin that hangs while it is
imported hangs whoever uses it. `kinfolk list` finds such a plugin by importing each one in a process of its own under a
time limit, and the command line leaves out policies that fail there; `KINFOLK_PLUGINS` keeps a plugin out.
`containment` is how their code is called.
"""
