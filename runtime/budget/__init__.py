"""How much memory a rank of a DeepSeek-V4.1 model takes, from what the checkpoint holds and how it is divided."""
