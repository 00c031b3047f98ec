"""Adapter for Flower: a `Strategy` of its message API that uses a Selector, and a ClientApp that answers the queries.

    strategy = SelectorStrategy("fl_dp3s", num_clients=50, num_selected=10, num_rounds=100, profile_size=64)
    result = strategy.start(grid, ArrayRecord(module.state_dict()))          # in the ServerApp

    app = client_app(make_client)                                            # the ClientApp

docs/selector.md shows both sides. The first access to one of these names imports Flower.
"""

import importlib
from typing import TYPE_CHECKING, Any

from fedjax_sel.core import plugins

if TYPE_CHECKING:
    from fedjax_sel.adapters.flower.messages import client_app
    from fedjax_sel.adapters.flower.strategy import SelectorStrategy

__all__ = ["SelectorStrategy", "client_app"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'fedjax_sel.adapters.flower' has no attribute {name!r}")
    plugins.optional("flwr.serverapp.strategy", __name__, "install it with pip install 'fedjax-sel[flower]'")
    module = {"SelectorStrategy": "strategy", "client_app": "messages"}[name]
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
