"""Stand-ins of the papers' data sets, for benchmarks whose speed does not depend on what the images show."""

SHAPES = {"fashion_mnist": "image_size=28", "mnist": "image_size=28", "cifar10": "image_size=32,channels=3"}


def like(dataset: str, train_size: int = 60_000, test_size: int = 10_000) -> str:
    """Return the name of a synthetic data set.

    Args:
        dataset: one of SHAPES.
        train_size: examples.
        test_size: examples.

    Returns:
        What `--dataset` takes.

    Raises:
        SystemExit: there is no stand-in of it.
    """
    if dataset not in SHAPES:
        raise SystemExit(f"there is no stand-in of {dataset}; take a preset of {', '.join(SHAPES)}")
    return f"synthetic:train_size={train_size},test_size={test_size},num_classes=10,{SHAPES[dataset]}"
