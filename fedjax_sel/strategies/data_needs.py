"""Which data a strategy's requests need: held out by clients, or the server's own."""

from fedjax_sel.errors import UserError
from fedjax_sel.strategies import kinds
from fedjax_sel.strategies.base import Strategy
from fedjax_sel.strategies.requests import SERVER, Request


def check(strategy: Strategy, holdout: float, server_validation: float) -> None:
    """Refuse requests that nobody serves, or for which nobody holds the data.

    Args:
        strategy: whose requests.
        holdout: share of each client's data that is held out.
        server_validation: share of the training set that the server holds.

    Raises:
        UserError: one sentence with the strategy, the request and the way out.
    """
    kinds.check(strategy)
    for request in strategy.requests:
        name = f"strategy {strategy.name!r} requests {request.kind!r}"
        if request.option("on") == "holdout" and holdout == 0:
            raise UserError(f"{name} on held-out data, and clients hold none out; add --holdout 0.2")
        if needs_validation(request) and server_validation == 0:
            raise UserError(f"{name} on the server's own data, and it holds none; add --server-validation 0.05")


def needs_validation(request: Request) -> bool:
    """Return whether the server must hold data of its own to serve a request."""
    return request.who == SERVER and request.option("on", "validation") == "validation"
