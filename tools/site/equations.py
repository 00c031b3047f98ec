"""Conversion of the arithmatex extension's LaTeX to MathML, which needs no scripts, fonts or network."""

import html as escapes
import re

import latex2mathml.converter  # pyright: ignore[reportMissingImports]

_INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
_BLOCK = re.compile(r'<div class="arithmatex">\\\[(.*?)\\\]</div>', re.DOTALL)


def as_mathml(html: str, page: str) -> str:
    """Convert a page's equations to MathML.

    Args:
        html: the page's HTML.
        page: the page's name, for messages.

    Raises:
        ValueError: If an equation cannot be converted.
    """
    for pattern, display in ((_BLOCK, "block"), (_INLINE, "inline")):
        html = pattern.sub(lambda match, display=display: _drawn(match[1], display, page), html)
    return html


def _drawn(latex: str, display: str, page: str) -> str:
    latex = escapes.unescape(latex).strip()
    try:
        mathml = latex2mathml.converter.convert(latex, display=display)
    except Exception as error:
        raise ValueError(f"{page}: cannot convert the equation {latex!r} ({type(error).__name__}: {error})") from error
    return f'<div class="equation">{mathml}</div>' if display == "block" else mathml
