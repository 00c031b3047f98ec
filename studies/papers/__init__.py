"""The papers' tables and figures, run again: what each claims, what comes out here, and a verdict by a rule.

entry       what an entry is: a claim, the runs that it needs, and how they are judged
verdicts    the rules, written down before any run
page        what an entry leaves in its folder: Markdown, CSV, pictures
heading     what stands above its table, written and read again
replacing   what may replace a page that is there
runner      runs that are finished are read, others go on
entries     the papers, one file each
"""
