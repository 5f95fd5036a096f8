"""Observe, decide, execute, publish: the loop that ties the pure core to the doors."""
