"""Tests of the plan of the fabric."""
