"""The pure heart: what to do, given what was seen. Standard library only; no clock, no file, no socket."""
