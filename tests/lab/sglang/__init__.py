"""SGLang in the lab: what its hosts run besides sparkd, and how that is made. See root.py."""
