"""Descriptions of a strategy's bought facts and their cost, derived from its requests and the catalog of facts.

The cost excludes the traffic of every strategy: K models down and K up per round.
"""

from fedjax_sel.strategies import kinds
from fedjax_sel.strategies.base import Strategy
from fedjax_sel.strategies.requests import ALL, CANDIDATES, SELECTED, SERVER, Request, Rule

_WHO = {ALL: ("all", "N"), CANDIDATES: ("candidates", "d"), SELECTED: ("the cohort", "K")}


def buys(strategy: Strategy) -> str:
    """Return the facts that a strategy buys, e.g. "loss of all, loss of the cohort"; "nothing" without requests."""
    return ", ".join(dict.fromkeys(_bought(request) for request in strategy.requests)) or "nothing"


def costs(strategy: Strategy) -> str:
    """Return the extra traffic, e.g. "start: N down, N floats up; each round: K floats up"; or "nothing".

    `down` and `up` count models. A client that is queried and selected in the same round downloads the model once.
    """
    parts: dict[str, list[str]] = {}
    for request in strategy.requests:
        if request.when.before_first_round:
            parts.setdefault("start", []).append(_price(request))
        for rule in request.when.rules:
            parts.setdefault(_when(rule), []).append(_price(request))
    return "; ".join(f"{when}: {' and '.join(prices)}" for when, prices in parts.items()) or "nothing"


def _bought(request: Request) -> str:
    words = kinds.KINDS[request.kind].words
    if request.who == SERVER:
        return f"{words} on {request.option('on', 'validation')} data"
    words = f"{words} of {_WHO[request.who][0]}"
    if probes := kinds.probes(request):
        return f"{words} under {probes} random cohort{'s' if probes > 1 else ''}"
    return f"{words} on {request.option('batch_size')} examples" if request.option("batch_size") else words


def _price(request: Request) -> str:
    kind = kinds.KINDS[request.kind]
    if request.who == SERVER:
        return "no traffic (the server evaluates)"
    if probes := kinds.probes(request):
        times = "" if probes == 1 else f"{probes} "
        return f"{1 + probes}N down, {times}K up, {1 + probes}N floats up"
    count = _WHO[request.who][1]
    floats = f"{count} {f'x {kind.symbol} ' if kind.symbol else ''}floats up"
    if not kind.needs_model or request.who == SELECTED:
        return floats
    return f"{count} down, {floats}"


def _when(rule: Rule) -> str:
    if rule.last is not None:
        return f"rounds {rule.first + 1} to {rule.last + 1}"
    if rule.period == 1:
        return "each round" if rule.first == 0 else f"each round from {rule.first + 1}"
    return f"every {rule.period} rounds from {rule.first + 1}"
