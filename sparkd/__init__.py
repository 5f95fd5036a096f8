"""The daemon that brings a tensor-parallel ring of DGX Sparks up in order and keeps it up."""

__version__ = "0.1.0"
