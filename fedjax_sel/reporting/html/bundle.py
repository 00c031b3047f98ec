"""Scripts and styles that are inlined into the self-contained page."""

from importlib import resources

from fedjax_sel.errors import UserError

STYLES = ("page.css",)
SCRIPTS = ("state.js", "theme.js", "plots.js", "curves.js", "pairs.js", "clients.js", "inside.js", "controls.js")
"""The scripts in execution order."""


def plotly() -> str:
    """Return the full plotly.js, since the package has no smaller bundle.

    Raises:
        UserError: plotly is not installed.
    """
    try:
        from plotly.offline import get_plotlyjs  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise UserError("--html: the package plotly is missing; run pip install 'fedjax-sel[html]'") from error
    return get_plotlyjs()


def own(names: tuple[str, ...]) -> str:
    """Return the concatenated files from this package's `static` folder."""
    place = resources.files("fedjax_sel.reporting.html") / "static"
    return "\n".join((place / name).read_text(encoding="utf-8") for name in names)
