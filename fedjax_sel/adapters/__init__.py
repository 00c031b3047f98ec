"""Adapters of the Selector to other federated learning frameworks."""
