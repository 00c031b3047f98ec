"""FedCor's presets, its memory of observed losses, and the Gaussian process fitted to it."""
