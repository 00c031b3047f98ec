"""Synthetic substitutes for the papers' data sets, for benchmarks whose speed does not depend on image content."""

SHAPES = {"fashion_mnist": "image_size=28", "mnist": "image_size=28", "cifar10": "image_size=32,channels=3"}


def like(dataset: str, train_size: int = 60_000, test_size: int = 10_000) -> str:
    """Return the `--dataset` value of a synthetic substitute.

    Args:
        dataset: the original data set, one of SHAPES.
        train_size: number of training examples.
        test_size: number of test examples.

    Raises:
        SystemExit: If the data set has no substitute.
    """
    if dataset not in SHAPES:
        raise SystemExit(f"no synthetic substitute for {dataset}; choose a preset with {', '.join(SHAPES)}")
    return f"synthetic:train_size={train_size},test_size={test_size},num_classes=10,{SHAPES[dataset]}"
