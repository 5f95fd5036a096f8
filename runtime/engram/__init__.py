"""The Engram tables of a checkpoint, packed as each rank reads them; runtime.engram_format has the layout."""
