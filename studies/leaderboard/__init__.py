"""Every strategy under the same settings: the leaderboard, the same tuning for all, and the price of information.

settings      the settings, the strategies with their numbers, and what runs are made of them
parts         what the command runs by name
running       a part's runs: finished ones are read, others go on
series        what of a run is kept: accuracy and bytes of every round, in a file small enough to be committed
measures      one number a seed, from the series of a setting
standings     a setting's table: means, intervals, and what is significant
across        all settings together: interquartile means, performance profiles
tuning        the same tuning for every strategy
information   what information costs, and when it pays
pages, pictures   Markdown and PNG
"""
