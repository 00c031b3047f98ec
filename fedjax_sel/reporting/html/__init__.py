"""Reports as a single HTML page, rendered by `page.render`.

sources      runs by setting, with the data for the page
series       curves: means and spreads over seeds against rounds, megabytes and seconds
selections   cohorts, selection counts, and per-client results
insides      a strategy's state from its last checkpoint
tables       results and paired differences
again        the configuration, the command to repeat the runs, and their provenance
bundle       the scripts and styles of `static`, and plotly.js
page         the complete page
"""
