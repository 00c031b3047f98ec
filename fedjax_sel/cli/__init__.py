"""The command-line interface: argument parsing and printed output."""
