"""What few seeds can tell: pure functions of arrays, in which the seeds are paired by construction.

paired       an interval and a test for a mean paired difference
families     Holm's correction, and the verdict: better, worse, within chance, too few seeds
aggregates   interquartile means and performance profiles, over seeds and settings
censored     rounds or megabytes to a target that a seed may never reach
normality    whether samples are Gaussian: a distance and a test
covariances  how alike two covariances are

docs/statistics.md says which to use when, and why these.
"""

from fedjax_sel.statistics.aggregates import (
    interquartile_mean,
    interquartile_mean_interval,
    performance_profile,
)
from fedjax_sel.statistics.censored import (
    restricted,
    restricted_mean,
    restricted_mean_interval,
    share_arrived,
)
from fedjax_sel.statistics.families import (
    ALPHA,
    BETTER,
    TOO_FEW_SEEDS,
    WITHIN_CHANCE,
    WORSE,
    Comparison,
    Holm,
    compare,
    holm,
    least_pairs,
)
from fedjax_sel.statistics.paired import Interval, mean_interval, ratio_interval, sign_flip_test

__all__ = [
    "ALPHA",
    "BETTER",
    "TOO_FEW_SEEDS",
    "WITHIN_CHANCE",
    "WORSE",
    "Comparison",
    "Holm",
    "Interval",
    "compare",
    "holm",
    "interquartile_mean",
    "interquartile_mean_interval",
    "least_pairs",
    "mean_interval",
    "performance_profile",
    "ratio_interval",
    "restricted",
    "restricted_mean",
    "restricted_mean_interval",
    "share_arrived",
    "sign_flip_test",
]
