"""A client of an engine's OpenAI API, for what asks and measures it: bounded in time, counted in tokens."""
