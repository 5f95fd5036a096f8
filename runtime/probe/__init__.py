"""The embedded engine: a real group that proves the fabric instead of serving a model."""
