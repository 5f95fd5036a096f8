"""What a rank runs: the launcher and the engines it can start. Standard library only."""
