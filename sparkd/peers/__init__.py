"""The other hosts of the ring, over mutual TLS on the management network."""
