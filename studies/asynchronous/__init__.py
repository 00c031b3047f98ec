"""Rounds that wait and rounds that do not, at equal simulated seconds.

protocol      what was settled before the runs: worlds, modes, strategies, tests
page          tables and picture
command       the command line
"""
