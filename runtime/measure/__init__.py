"""Measures the rails of this host before a start, each together with the host at its other end."""
