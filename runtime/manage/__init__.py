"""`sparkd-engine`: the engine's installation, the checkpoint, its packed rows, and whether they fit."""
