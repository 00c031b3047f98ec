"""What noise for privacy leaves of a strategy's gain.

protocol      what was settled before the runs: settings, strategies, budgets, tests
page          table and picture
command       the command line
"""
