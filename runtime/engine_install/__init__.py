"""The engine's Python environment: made of the wheels of a lock, whole or not at all, several versions side by side.

ROOT/VERSION holds one version, ROOT/current is a link to the one in use, and ROOT/bin, lib and pyvenv.cfg are links
that go through it, so that ROOT/bin/python stays the same path and changing the version is one rename.
"""
