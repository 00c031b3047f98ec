"""Statistics for few paired seeds, as pure functions of arrays.

paired       interval and test for a mean paired difference
families     Holm's correction, and a verdict for each comparison
aggregates   interquartile means and performance profiles, over seeds and settings
censored     rounds or megabytes to a target that some seeds never reach
normality    distance of samples from a Gaussian, and a test
covariances  similarity of two covariances

docs/statistics.md explains the choice of methods.
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
