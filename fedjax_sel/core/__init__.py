"""What every room may lean on: files, names, parsing of what users write, plug-ins, the terminal."""
