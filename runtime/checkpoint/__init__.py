"""A model's checkpoint on this host: what it has to be, whether it is that, and where it comes from.

Everything about a copy lies in `.sparkd` below its directory: the manifest, the receipts of files that were found to be
as the manifest says, and what is being downloaded. A file has its own name only once it is whole and verified.
"""
