"""Shared utilities without domain logic: files, name lookup, input parsing, plug-ins, JAX's settings."""
