"""Plots and tables of results."""
