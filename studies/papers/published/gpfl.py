"""GPFL (Na, Liang, Yiu)."""

from studies.papers.published.entry import PICTURE, Cell, Numbers, Published, Row, Stated

FMNIST = {
    "hidden_units": Stated((64, 30), ("two hidden layers, consisting of 64 and 30 units, respectively",)),
    "batch_size": Stated(64, ("the local batch size is set to 64",)),
    "local_steps": Stated(20, ("the number of local iterations is set to 20",)),
    "learning_rate": Stated(0.005, ("We initialize the learning rate (η) as 0.005",)),
    "weight_decay": Stated(0.0001, ("with a weight decay of 0.0001 and momentum of 0.1",)),
    "momentum": Stated(0.1, ("with a weight decay of 0.0001 and momentum of 0.1",)),
    "num_clients": Stated(100, ("The data is divided among N = 100 clients",)),
}
"""The task of the columns headed FEMINST, as section V has it."""

CIFAR10 = {
    "channels": Stated((32, 64, 64), ("consisting of 32, 64, and 64 kernels, respectively",)),
    "hidden_units": Stated(64, ("followed by a fully-connected layer with 64 units",)),
    "batch_size": Stated(50, ("the local batch size is set to 50",)),
    "local_steps": Stated(40, ("the number of local iterations is set to 40",)),
    "learning_rate": Stated(0.01, ("a fixed learning rate (η) of 0.01 without any learning rate decay",)),
    "weight_decay": Stated(0.0003, ("a weight decay of 0.0003 for the SGD optimizer",)),
    "num_clients": Stated(100, ("the data is distributed across 100 clients",)),
}

TASKS = {
    "num_selected": Stated(
        {"1spc": 10, "2spc": 5, "dir": 5}, ("selected clients K = 10 for 1SPC and K = 5 for 2SPC and Dir",)
    ),
    "shards": Stated({"2spc": 200}, ("sorted by labels and divided into 200 shards",)),
    "alpha": Stated({"dir": 0.2}, (r"to create the Dirichlet Distribution with $\zeta = 0.2$ (Dir) setting",)),
    "rho": Stated(1, (r"We set $\rho = 1$ in our experiment",)),
    "rounds": Stated({"fmnist": 500, "cifar10": 2000}, ("trained for a total of 500 and 2000 rounds, respectively",)),
    **{f"fmnist.{name}": stated for name, stated in FMNIST.items()},
    **{f"cifar10.{name}": stated for name, stated in CIFAR10.items()},
}

COLUMNS = ("fmnist-1spc", "fmnist-2spc", "fmnist-dir", "cifar10-1spc", "cifar10-2spc", "cifar10-dir")


def _accuracies(what: str, rows: dict[str, Row], spread: str = "") -> Numbers:
    """Return one of the three parts of Table II."""
    return Numbers(what, "fraction", ("strategy", "task"), COLUMNS, rows, spread)


def _cells(*values: float) -> tuple[Cell, ...]:
    """Return numbers without a spread."""
    return tuple(Cell(value) for value in values)


AT_15 = _accuracies(
    "test accuracy after 15 % of the rounds (75 and 300)",
    {
        "random": Row(
            _cells(0.4895, 0.5378, 0.4859, 0.1347, 0.3493, 0.2849),
            ("15% Random 0.4895 0.5378 0.4859 0.1347 0.3493 0.2849",),
        ),
        "pow_d": Row(
            _cells(0.4826, 0.5824, 0.5802, 0.1515, 0.2867, 0.3089),
            ("Pow-d 0.4826 0.5824 0.5802 0.1515 0.2867 0.3089",),
        ),
        "fedcor": Row(
            _cells(0.6646, 0.6971, 0.5635, 0.1526, 0.2455, 0.2455),
            ("FedCor 0.6646 0.6971 0.5635 0.1526 0.2455 0.2455",),
        ),
        "gpfl": Row(
            _cells(0.6789, 0.6879, 0.6268, 0.1000, 0.3659, 0.2941),
            ("GPFL(ours) 0.6789 0.6879 0.6268 0.1000 0.3659 0.2941",),
        ),
    },
)

AT_50 = _accuracies(
    "test accuracy after 50 % of the rounds (250 and 1000)",
    {
        "random": Row(
            _cells(0.4331, 0.5367, 0.5575, 0.2219, 0.3008, 0.3655),
            ("50% Random 0.4331 0.5367 0.5575 0.2219 0.3008 0.3655",),
        ),
        "pow_d": Row(
            _cells(0.4865, 0.6327, 0.4903, 0.2885, 0.389, 0.3419),
            ("Pow-d 0.4865 0.6327 0.4903 0.2885 0.389 0.3419",),
        ),
        "fedcor": Row(
            _cells(0.6717, 0.6907, 0.6814, 0.2047, 0.4081, 0.4081),
            ("FedCor 0.6717 0.6907 0.6814 0.2047 0.4081 0.4081",),
        ),
        "gpfl": Row(
            _cells(0.6956, 0.7741, 0.7411, 0.2352, 0.5202, 0.4183),
            ("GPFL(ours) 0.6956 0.7741 0.7411 0.2352 0.5202 0.4183",),
        ),
    },
)

AT_100 = _accuracies(
    "mean test accuracy of the last 10 rounds",
    {
        "random": Row(
            (
                *(Cell(0.5020, 0.08), Cell(0.6001, 0.11), Cell(0.5451, 0.08)),
                *(Cell(0.2667, 0.08), Cell(0.5257, 0.06), Cell(0.5179, 0.05)),
            ),
            (
                r"Random 0.5020 ± 0.08 0.6001 ± 0.11 0.5451 ± 0.08",
                r"0.2667 ± 0.08 0.5257 ± 0.06 0.5179 ± 0.05",
            ),
        ),
        "pow_d": Row(
            (
                *(Cell(0.4801, 0.15), Cell(0.5859, 0.08), Cell(0.5831, 0.16)),
                *(Cell(0.3110, 0.08), Cell(0.5613, 0.18), Cell(0.4989, 0.18)),
            ),
            (
                r"Pow-d 0.4801 ± 0.15 0.5859 ± 0.08 0.5831 ± 0.16",
                r"0.3110 ± 0.08 0.5613 ± 0.18 0.4989 ± 0.18",
            ),
        ),
        "fedcor": Row(
            (
                *(Cell(0.5714, 0.12), Cell(0.6846, 0.04), Cell(0.6359, 0.09)),
                *(Cell(0.2719, 0.10), Cell(0.4759, 0.10), Cell(0.4821, 0.10)),
            ),
            (
                r"FedCor 0.5714 ± 0.12 0.6846 ± 0.04 0.6359 ± 0.09",
                r"0.2719 ± 0.10 0.4759 ± 0.10 0.4821 ± 0.10",
            ),
        ),
        "gpfl": Row(
            (
                *(Cell(0.7703, 0.04), Cell(0.7780, 0.04), Cell(0.7370, 0.05)),
                *(Cell(0.2822, 0.10), Cell(0.5755, 0.05), Cell(0.5346, 0.06)),
            ),
            (
                r"GPFL(ours) $\textbf{0.7703} \pm \textbf{0.04}$ $\textbf{0.7780}\pm\textbf{0.04}$",
                r"$\textbf{0.7370}\pm\textbf{0.05}$ 0.2822 ± 0.10",
                r"$\textbf{0.5755}\pm\textbf{0.05}$ $\textbf{0.5346} \pm \textbf{0.06}$",
            ),
        ),
    },
    spread="largest deviation of the last 10 rounds from their mean, in one run",
)

GAINS = Numbers(
    what="final accuracy of GPFL less that of the best baseline",
    unit="fraction",
    axes=("strategy", "task"),
    columns=COLUMNS[:3],
    rows={
        "gpfl": Row(
            _cells(0.1989, 0.0934, 0.1011), ("by 19.89%, 9.34%, and 10.11% on 1SPC, 2SPC, and Dir distributions",)
        )
    },
)
STEADINESS = Numbers(
    what="largest deviation of GPFL's last 10 rounds from their mean, Fashion-MNIST columns",
    unit="fraction",
    axes=("strategy", "quantity"),
    columns=("deviation",),
    rows={
        "gpfl": Row(
            (Cell(0.04, bound="at most"),),
            ("the last 10 rounds, with a difference of no more than 4% between",),
        )
    },
)

STATISTICS = Numbers(
    what="statistics of the data sets",
    unit="clients, samples, samples a client",
    axes=("statistic", "data set"),
    columns=("femnist", "cifar10"),
    rows={
        "clients": Row(_cells(3550, 100), ("Client Count 3,550 100",)),
        "samples": Row(_cells(805263, 60000), ("Sample Coun t 805,263 60,000",)),
        "mean samples a client": Row(_cells(226.83, 946.8), ("Sample non Client Mean 226.83 946.8",)),
        "deviation of samples a client": Row(_cells(88.94, 256.04), ("Stdev 88.94 256.04",)),
    },
)

IN_THE_TEXT = Numbers(
    what="clients and mean samples a client as section VI-A has them",
    unit="clients; samples",
    axes=("data set", "statistic"),
    columns=("clients", "mean samples a client"),
    rows={
        "femnist": Row(_cells(3550, 226), ("3550 clients, with an average of 226 samples per client",)),
        "cifar10": Row(_cells(100, 947), ("across 100 clients, with an average of 947 samples per client",)),
    },
)

COVERAGE = Numbers(
    what="rounds until every client was selected at least once",
    unit="rounds",
    axes=("strategy", "quantity"),
    columns=("rounds",),
    rows={
        "gpfl": Row((Cell(50, bound="at most"),), ("selected at least once within a mere 50 rounds",)),
        "random": Row((Cell(100, bound="about"),), ("the nearly 100 rounds required by random and pow-d",)),
        "pow_d": Row((Cell(100, bound="about"),), ("the nearly 100 rounds required by random and pow-d",)),
        "fedcor": Row((Cell(200, bound="about"),), ("approximately 200 rounds to achieve equivalent coverage",)),
    },
)

TAILS = Numbers(
    what="selections of the most selected clients",
    unit="selections",
    axes=("strategy", "quantity"),
    columns=("longest tail",),
    rows={
        "gpfl": Row((Cell(500, bound="about"),), ("a distinctive long tail reaching up to around 500",)),
        "fedcor": Row((Cell(120, bound="about"),), ("a long tail extending to about 120 selections",)),
    },
)
PEAKS = Numbers(
    what="peak of the histogram of selections",
    unit="selections; clients",
    axes=("strategy", "coordinate"),
    columns=("selections", "clients"),
    rows={
        "pow_d": Row((Cell(24, bound="about"), Cell(7, bound="about")), ("a flatter curve centered on (24, 7)",)),
        "random": Row((Cell(25, bound="about"), Cell(10, bound="about")), ("Random peaking around (25, 10)",)),
    },
)
CENTRE = Numbers(
    what="mean selections of a client",
    unit="selections",
    axes=("strategy", "quantity"),
    columns=("mean",),
    rows={
        name: Row((Cell(20, bound="about"),), ("normal distribution is evident with an average around 20",))
        for name in ("random", "pow_d", "fedcor")
    },
)

EXPLORATION = Numbers(
    what="final accuracy with exploration less that without (alpha = 0)",
    unit="fraction",
    axes=("strategy", "quantity"),
    columns=("gain",),
    rows={"gpfl": Row((Cell(0.1, bound="about"),), ("is nearly 10% higher than that without EE",))},
)

FIVE_A_ROUND = (
    "The setting is not named. K = 5 of 100 clients and 500 rounds (2SPC) are taken: random selection then needs "
    "about 100 rounds to see all clients, and selects a client 25 times"
)

ENTRIES = (
    Published(
        id="gpfl/table1",
        title="Table I: statistics of the data sets",
        claim="FEMNIST is split among 3,550 clients and CIFAR-10 among 100.",
        source="table",
        numbers=(STATISTICS, IN_THE_TEXT),
        reading=(
            "The FEMINST column describes LEAF's FEMNIST by writer, which Table II does not use. CIFAR-10's 946.8 "
            "samples per client contradict 60,000 samples among 100 clients and are ignored."
        ),
    ),
    Published(
        id="gpfl/table2",
        title="Table II: test accuracy after 15, 50 and 100 % of the rounds",
        claim="GPFL ends with the highest accuracy in all settings but CIFAR-10 under 1SPC.",
        source="table",
        numbers=(AT_15, AT_50, AT_100, GAINS, STEADINESS),
        settings={
            **TASKS,
            "averaged_rounds": Stated(10, ("the average test accuracy achieved during the last 10 rounds",)),
        },
        reading=(
            "The FEMINST columns are read as Fashion-MNIST with 100 clients, because the released logs hold the "
            "table's values. The model is FedCor's MLP with its dropout: section V has two hidden layers of 64 and 30 "
            'units, section VI "a CNN network on both datasets". Each cell is one run: single rounds at 15 and 50 %, '
            "the mean of the last 11 at 100 %. So the ± is not a deviation over seeds. FedCor's CIFAR-10 values under "
            "Dir at 15 and 50 % are copies of 2SPC's and are not judged. The table's own 0.05 contradicts the text's "
            "4 %."
        ),
    ),
    Published(
        id="gpfl/fig1",
        title="Descent with momentum against plain gradient descent",
        claim="Momentum goes to the optimum with less oscillation and in fewer steps than plain gradient descent.",
        source=PICTURE,
        reading="The figure is a drawing without a stated function, so an ill-conditioned quadratic is taken.",
    ),
    Published(
        id="gpfl/fig3",
        title="Test accuracy over the rounds on FEMINST, four strategies and three partitions",
        claim="On FEMINST GPFL gets to a high accuracy soon and stays above all baselines.",
        source=PICTURE,
        settings=TASKS,
        reading="FEMINST is read as Fashion-MNIST with 100 clients, as in table2, whose runs these curves are.",
    ),
    Published(
        id="gpfl/fig4",
        title="Clients selected at least once over the rounds",
        claim="GPFL has selected every client once sooner than random and power-of-choice, and FedCor does so last.",
        source="text",
        numbers=(COVERAGE,),
        settings=TASKS,
        reading=f"{FIVE_A_ROUND}. Of 3,550 clients, no strategy could see all within 50 rounds.",
    ),
    Published(
        id="gpfl/fig5",
        title="Histogram of the selection frequencies",
        claim="All baselines look roughly normal around 20 to 25 selections, and GPFL and FedCor have long tails.",
        source="text",
        numbers=(TAILS, PEAKS, CENTRE),
        settings=TASKS,
        reading=(
            f"{FIVE_A_ROUND}. Eq. 8 has three readings: the released code's (a sign), with the loss's sign corrected, "
            "and as printed. The text does not say which one gave a tail of 500."
        ),
    ),
    Published(
        id="gpfl/fig6",
        title="Training time of 200 rounds",
        claim="GPFL takes slightly longer than random and less than power-of-choice, and FedCor by far the longest.",
        source=PICTURE,
        settings={"rounds": Stated(200, ("the time taken to run each method for 200 rounds",))},
        reading="No machine and no seconds are given, so only the order of the four strategies is judged.",
    ),
    Published(
        id="gpfl/fig7",
        title="Sensitivity to the weight of exploration: constant alpha and the slope rho",
        claim="Without exploration accuracy stops rising after 500 rounds, and a linear alpha with rho = 1 is best.",
        source="text",
        numbers=(EXPLORATION,),
        settings={
            "rho": Stated((0.5, 1, 2, 5), ("different values of ρ (0.5, 1, 2, and 5) in Equation 7",)),
            "best_rho": Stated(1, ("the test accuracy is optimized when rho is set to 1",)),
            "plateau": Stated(500, ("In the first 500 rounds, not using EE mechanism yields good results",)),
        },
        reading=(
            "These runs are longer than table2's 500 rounds, and the constants of alpha are not given. So the "
            "released logs' study is taken (2SPC on Fashion-MNIST, alpha 0, 0.1, 2 and 5), and LEAF's FEMNIST if a "
            "user has it."
        ),
    ),
    Published(
        id="gpfl/theorem1",
        title="Bound on the regret of the selection, Theorem 1",
        claim="The expected regret is at most t exp(-tau / 2) / (1 - (t + 1) exp(-tau / 2)), tau = 2 ln n / n_i.",
        source="theorem",
        reading=(
            "n is not defined. It is read as the round t, as in the upper confidence bound that the paper cites. Then "
            "exp(-tau/2) is t^(-1/n_i)."
        ),
    ),
)
