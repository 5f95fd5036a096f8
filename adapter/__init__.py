"""What is added to the engine, SGLang: hooks that run inside its processes.

SGLang loads them through its plug-in entry point group, so nothing of it is patched on disk. Adapters run in the
engine's own virtual environment, with its Python and its packages: they import nothing of sparkd, and what they have
to say to the daemon they say through the rank's progress channel and environment.
"""
