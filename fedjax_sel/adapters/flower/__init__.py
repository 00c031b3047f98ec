"""Adapter for Flower: a `Strategy` of its message API that uses a Selector, and a ClientApp that answers the queries.

    strategy = SelectorStrategy("fl_dp3s", num_clients=50, num_selected=10, num_rounds=100, profile_size=64)
    result = strategy.start(grid, ArrayRecord(module.state_dict()))          # in the ServerApp

    app = client_app(make_client)                                            # the ClientApp

docs/selector.md shows both sides. The first access to one of these names imports Flower.
"""

from typing import TYPE_CHECKING, Any

from fedjax_sel.errors import UserError

if TYPE_CHECKING:
    from fedjax_sel.adapters.flower.messages import client_app
    from fedjax_sel.adapters.flower.strategy import SelectorStrategy

__all__ = ["SelectorStrategy", "client_app"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'fedjax_sel.adapters.flower' has no attribute {name!r}")
    try:
        import flwr.serverapp.strategy  # noqa: F401 # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise UserError(
            f"fedjax_sel.adapters.flower: Flower 1.41 or newer cannot be imported ({error}); install it with "
            "pip install 'fedjax-sel[flower]'"
        ) from error
    if name == "client_app":
        from fedjax_sel.adapters.flower.messages import client_app

        return client_app
    from fedjax_sel.adapters.flower.strategy import SelectorStrategy

    return SelectorStrategy
