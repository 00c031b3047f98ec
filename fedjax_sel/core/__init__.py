"""Shared utilities without domain logic: files, name lookup, input parsing, plug-ins, the terminal."""
