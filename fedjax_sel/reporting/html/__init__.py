"""A report as one page: `page.render` makes it, of what the other files take from runs.

sources      runs by setting, with all that is known of each
series       curves: means and spreads over seeds against rounds, megabytes and seconds
selections   who trained when
insides      what a strategy learned of the clients, from its last checkpoint
tables       numbers and paired differences
again        the configuration, and how to run it again
bundle       the scripts and styles of `static`, and plotly's
page         all of it in one file
"""
