"""What is added to the engine, SGLang: hooks that run inside its processes.

SGLang loads them through its plug-in entry point group, so nothing of it is patched on disk. Adapters run in the
engine's own virtual environment, with its Python and its packages: they import nothing of sparkd, and what they have
to say to the daemon they say through the rank's progress channel and environment.

Each adapter is a module of its name here, or a package of it, with ADAPTER, which declares it, and `install`. A module
that nobody wants is not imported, and none imports torch or SGLang before `install`.
"""
