"""Selectors in other people's servers: what their frameworks have in common, and one room for each framework."""
