"""Tables of runs that a command computes, resumes and writes; used by all studies of strategies.

grid       the rows of a table, with their configurations
running    execution of a table: finished runs are read, unfinished ones resume
series     accuracy, bytes and seconds of each round, in files small enough to commit
measures   metrics per seed, from the series of a table
command    command line of a study
"""
