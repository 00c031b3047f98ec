"""Leaderboard: all strategies on several tasks, with learning rates that were tuned for random selection.

protocol      what was settled before the runs: tasks, rows, learning rates, families of tests
page          tables and pictures
command       the command line
"""
