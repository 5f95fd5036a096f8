"""SGLang as a rank's engine: a child that is followed by its log, its processes and the tokens that it makes."""
