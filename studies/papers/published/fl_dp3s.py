"""FL-DP3S (Zhang, Xu, Yang, Wang, Quek)."""

from studies.papers.published.entry import PICTURE, Cell, Numbers, Published, Row, Stated

SETTINGS = {
    "num_clients": Stated(100, ("Here, we set C=100 and",)),
    "num_selected": Stated(10, ("$C_p=10$ .",)),
    "seeds": Stated(50, ("we repeat each experiment 50 times (with different random seeds)",)),
    "model": Stated(
        "CNN model with two convolutional layers and two fully-connected layers",
        ("training the CNN model with two convolutional layers and two fully-connected layers",),
    ),
    "samples": Stated(60000, ("each of which consists of 60,000 data samples",)),
}

EVERY_SKEWNESS = {
    "skewness": Stated(
        ("1", "0.8", "0.5", "H"),
        (
            r"$\xi = 1$ indicates that they only",
            r"$\xi=0.8$ indicates that 80%",
            r"$\xi=0.5$ indicates that 50%",
            r"$\xi=H$ indicates that they evenly belong to two different classes",
        ),
    ),
}

ASSUMED = (
    "Widths, optimizer, batches and local passes are not given. They are taken from flsim, whose skewness protocol "
    "the paper credits (5 passes, batches of 10, SGD 0.01 with momentum 0.5)"
)

ROUNDS = Numbers(
    what="rounds to 90 % accuracy on the training set, MNIST, xi = 1",
    unit="rounds",
    axes=("quantity", "strategy"),
    columns=("fl_dp3s", "clustered", "random", "fedsae"),
    rows={
        "rounds": Row(
            (Cell(62), Cell(122), Cell(127), Cell(259)),
            ("FL-DP<sup>3</sup>S, Cluster, FedAvg, and Fed-SAE require 62, 122, 127, and 259 rounds of training",),
        )
    },
)

ENTRIES = (
    Published(
        id="fl_dp3s/fig1",
        title="Training accuracy over the rounds on MNIST and Fashion-MNIST at four degrees of skewness",
        claim="FL-DP3S learns fastest in all eight settings, and its lead grows with skewness, from 0.5, 0.8, H to 1.",
        source="text",
        numbers=(ROUNDS,),
        settings={
            **SETTINGS,
            **EVERY_SKEWNESS,
            "target_accuracy": Stated(0.9, ("to achieve an accuracy of 90% on MNIST",)),
        },
        reading=(
            f"Accuracy is that of the training set, as the text says. {ASSUMED}. FedSAE's 259 rounds are compared "
            "with its softmax and with its greedy form, because the mild softmax can hardly be twice as slow as "
            "random."
        ),
    ),
    Published(
        id="fl_dp3s/calibrated",
        title="Training accuracy over the rounds, MNIST, xi = 1, with training calibrated on random selection",
        claim=(
            "FL-DP3S reaches 90 % in half of the rounds of clustered and random selection, and in a quarter of the "
            "rounds of FedSAE."
        ),
        source="text",
        numbers=(ROUNDS,),
        settings={**SETTINGS, "target_accuracy": Stated(0.9, ("to achieve an accuracy of 90% on MNIST",))},
        reading=(
            "With flsim's training (fig1), random selection is slower than in the paper. Here the open settings are "
            "those with which it is as fast."
        ),
    ),
    Published(
        id="fl_dp3s/fig2",
        title="Group earth mover's distance of the cohorts at four degrees of skewness",
        claim="FL-DP3S's cohorts have the lowest distance, and lower distance commonly goes with faster training.",
        source=PICTURE,
        settings={**SETTINGS, **EVERY_SKEWNESS},
        reading=(
            "N in Eq. 15 is the number of classes and not of clients, and the norm of a scalar is its absolute value."
        ),
    ),
    Published(
        id="fl_dp3s/fig3",
        title="Accuracy over the rounds with three profiles, MNIST, xi = 1",
        claim="Profiles of the first fully connected layer train faster than gradients or representative gradients.",
        source=PICTURE,
        settings={**SETTINGS, "skewness": Stated("1", (r"The performances on MNIST with $\xi=1$ are",))},
        reading=(
            "Whether gradient profiles are refreshed is not said; they are kept from the start, as the paper's own "
            "profile is."
        ),
    ),
    Published(
        id="fl_dp3s/fig4",
        title="Profiles of 20 clients under four initializations, MNIST, xi = 1",
        claim="The profile of a client depends strongly on how the model was initialized.",
        source=PICTURE,
        settings={
            "skewness": Stated("1", (r"similarities on MNIST with $\xi = 1$",)),
            "num_clients": Stated(20, ("we consider the scenario with C=20",)),
            "initializer": Stated(
                ("Kaiming uniform", "Kaiming normal", "Xavier uniform", "Xavier normal"),
                ("Kaiming uniform [33], Kaiming normal [33], Xavier uniform [25], and Xavier normal [25]",),
            ),
        },
        reading="A profile is the layer's output before its activation, as Theorem 1's affine form has it.",
    ),
    Published(
        id="fl_dp3s/fig5",
        title="Similarity kernel of 20 clients under four initializations, MNIST, xi = 1",
        claim="The kernels of the four initializations can hardly be distinguished.",
        source=PICTURE,
        settings={
            "skewness": Stated("1", (r"similarities on MNIST with $\xi = 1$",)),
            "num_clients": Stated(20, ("we consider the scenario with C=20",)),
        },
        reading="The kernel is compared by numbers (correlation of its entries), where the paper compares shades.",
    ),
    Published(
        id="fl_dp3s/fig6",
        title="Accuracy over the rounds under four initializations, MNIST, xi = 1",
        claim="FL-DP3S learns about as fast under every initialization, whereas FedAvg depends on it strongly.",
        source=PICTURE,
        settings={**SETTINGS, "skewness": Stated("1", (r"on MNIST with $\xi = 1$ in Fig. 6",))},
        reading=f"The settings are fig1's, as the text says. {ASSUMED}.",
    ),
    Published(
        id="fl_dp3s/gemd",
        title="Group earth mover's distance of cohorts that do not depend on training (Fig. 2)",
        claim="FL-DP3S's cohorts have a lower distance than random selection's at every degree of skewness.",
        source=PICTURE,
        settings={**SETTINGS, **EVERY_SKEWNESS},
        reading=(
            "The paper shows the distance of four strategies. The cohorts of two of them do not depend on the "
            "training, so their distances follow from the initial model. The other two are in fig2."
        ),
    ),
    Published(
        id="fl_dp3s/theorem1",
        title="Outputs of the first fully connected layer, Theorem 1",
        claim="The outputs of each unit of the first fully connected layer tend to follow a Gaussian distribution.",
        source="theorem",
        reading=(
            "The theorem is a limit in the number of input features, so the paper's own layer (800 features here) is "
            "tested. Its formula of the variance, which assumes independent features, is not tested."
        ),
    ),
)
