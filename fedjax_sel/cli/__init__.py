"""The commands: they parse, call and print."""
