"""The REST API: one application for operators, one for peers."""
