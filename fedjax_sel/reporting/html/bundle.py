"""What a page needs to draw in a browser, read from where it is installed: a page asks no network for anything."""

from importlib import resources

from fedjax_sel.errors import UserError

STYLES = ("page.css",)
SCRIPTS = ("state.js", "theme.js", "plots.js", "curves.js", "pairs.js", "clients.js", "inside.js", "controls.js")
"""In the order in which they run."""


def plotly() -> str:
    """Return plotly.js, whole: the package ships no smaller bundle.

    Raises:
        UserError: plotly is not installed.
    """
    try:
        from plotly.offline import get_plotlyjs  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise UserError("--html: the package plotly is missing; pip install 'fedjax-sel[html]'") from error
    return get_plotlyjs()


def own(names: tuple[str, ...]) -> str:
    """Return files of this package's `static`, one behind the other."""
    place = resources.files("fedjax_sel.reporting.html") / "static"
    return "\n".join((place / name).read_text(encoding="utf-8") for name in names)
