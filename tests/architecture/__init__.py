"""Rules of the tree itself: boundaries, linters and sizes, each with a proof that it catches what it is for."""
