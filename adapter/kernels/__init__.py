"""Triton kernels, the formats that they read, and plain PyTorch for where they do not run.

Nothing here knows SGLang. Modules are imported by adapters that are on; the package itself imports neither torch nor
Triton.
"""
