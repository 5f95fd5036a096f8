"""Stands in for SGLang's package: what ``python -m sglang.launch_server`` finds when the tests put it on the path."""
