"""Loaded by the tools of `dissect.target` through `DISSECT_PLUGINS`."""

import bandsaw.dissect

bandsaw.dissect.register()
