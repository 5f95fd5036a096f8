"""sparkctl, the operator's command. The daemon never imports it."""
