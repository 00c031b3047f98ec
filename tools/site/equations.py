"""LaTeX as the arithmatex extension leaves it in a page, drawn as MathML: without scripts, fonts or a network."""

import html as escapes
import re

import latex2mathml.converter  # pyright: ignore[reportMissingImports]

_INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
_BLOCK = re.compile(r'<div class="arithmatex">\\\[(.*?)\\\]</div>', re.DOTALL)


def as_mathml(html: str, page: str) -> str:
    """Return a page with its equations as MathML.

    Args:
        html: of the page.
        page: its name, for messages.

    Raises:
        ValueError: an equation is not LaTeX that can be drawn.
    """
    for pattern, display in ((_BLOCK, "block"), (_INLINE, "inline")):
        html = pattern.sub(lambda match, display=display: _drawn(match[1], display, page), html)
    return html


def _drawn(latex: str, display: str, page: str) -> str:
    latex = escapes.unescape(latex).strip()
    try:
        mathml = latex2mathml.converter.convert(latex, display=display)
    except Exception as error:
        raise ValueError(f"{page}: the equation {latex!r} cannot be drawn ({type(error).__name__}: {error})") from error
    return f'<div class="equation">{mathml}</div>' if display == "block" else mathml
