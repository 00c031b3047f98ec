"""Reproductions of the papers' tables and figures: claim, own result, and a verdict by a fixed rule.

entry       an entry: a claim, its runs, and their evaluation
study       execution of an entry, with its page and its Python result
runner      execution of an entry's runs: finished runs are read, unfinished ones resume
verdicts    rules of the verdicts
tables      comparison of tables and claims with the papers
curves      pictures of the runs
state, loss_changes   arrays that are saved or measured after a run
page        an entry's output: Markdown, CSV and pictures
heading     heading of a page, written and parsed
replacing   protection of existing pages
overview    table of all entries
entries     the papers' entries
"""
