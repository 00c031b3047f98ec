"""Checks that the data needed by a strategy's requests exist: held-out client data, and the server's own data."""

from fedjax_sel.errors import UserError
from fedjax_sel.strategies import kinds
from fedjax_sel.strategies.base import Strategy
from fedjax_sel.strategies.requests import SERVER, Request


def check(strategy: Strategy, holdout: float, server_validation: float) -> None:
    """Reject requests that the simulator does not serve, or whose data do not exist.

    Args:
        strategy: the strategy to check.
        holdout: fraction of each client's data that is held out.
        server_validation: fraction of the training set that the server holds.

    Raises:
        UserError: a request is invalid.
    """
    kinds.check(strategy)
    for request in strategy.requests:
        name = f"strategy {strategy.name!r} requests {request.kind!r}"
        if request.option("on") == "holdout" and holdout == 0:
            raise UserError(f"{name} on held-out data, but clients hold out no data; add --holdout 0.2")
        if needs_validation(request) and server_validation == 0:
            raise UserError(f"{name} on the server's own data, but the server has none; add --server-validation 0.05")


def needs_validation(request: Request) -> bool:
    """Return whether the server must hold data of its own to serve a request."""
    return request.who == SERVER and request.option("on", "validation") == "validation"
