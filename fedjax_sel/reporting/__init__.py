"""Pictures and tables of finished rounds."""
