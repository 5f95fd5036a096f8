"""What the launcher puts on the engine's path: one plug-in of SGLang's, that imports nothing of this package."""
