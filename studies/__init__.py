"""Studies built on fedjax_sel: the papers' tables and figures, and the leaderboard. Not part of the installed package.

python -m studies reproduce fedcor/table1
python -m studies leaderboard gray-2labels
"""
