"""The page in a headless Chromium: no complaints, controls that work, room on a phone, in the dark and on paper."""

import itertools
import re
import shutil
from pathlib import Path

import pytest

from fedjax_sel.reporting import html
from tests.reporting import browser, made_up

pytest.importorskip("plotly", reason="the page draws with plotly; pip install 'fedjax-sel[html]'")
pytestmark = pytest.mark.skipif(browser.find() is None, reason="no Chromium or Chrome is installed to open the page in")

TRACES = "[...document.querySelectorAll('.canvas')].map(one => (one.data || []).filter(t => t.name === '%s').length)"
FIRST = "document.querySelector('.plots.curves .canvas')"
UNFOLD = (
    "document.querySelectorAll('details').forEach(one => { one.open = true; });"
    " new Promise(done => setTimeout(done, 300))"  # the pictures are drawn after the event of unfolding
)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(html.render(made_up.chapters()), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    opened = browser.Browser(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()


@pytest.fixture
def shown(chromium, written, tmp_path):
    """Opens the page; afterwards its console has no complaint, and nobody was asked for anything."""
    chromium.errors.clear()
    page = shutil.copy(written, tmp_path)  # at an address of its own, because the browser remembers what was chosen

    def show(unfolded=True, **window):
        chromium.open(Path(page), **window)
        if unfolded:
            chromium.run(UNFOLD)
        return chromium

    yield show
    assert chromium.errors == []
    assert not [url for url in chromium.requests() if not url.startswith(("file:", "data:", "blob:"))]


def click(opened, selector):
    opened.run(f"document.querySelector(`{selector}`).click()")


def overflows(opened):
    """What is wider than the window and is not meant to be scrolled in its own place."""
    return opened.run(
        "[...document.querySelectorAll('body *')].filter(one => !one.closest('#sections, .wide, pre, svg, .canvas') &&"
        " one.getBoundingClientRect().right > innerWidth + 0.5).map(one => one.outerHTML.slice(0, 80))"
    )


@pytest.mark.slow
def test_a_strategy_is_hidden_everywhere_at_once(shown):
    opened = shown()
    assert sum(opened.run(TRACES % "fedcor")) >= 8
    assert opened.run("document.querySelectorAll('[data-run=fedcor]:not([hidden])').length") >= 4
    click(opened, "[data-strategy=fedcor]")
    assert sum(opened.run(TRACES % "fedcor")) == 0 < sum(opened.run(TRACES % "random"))
    assert opened.run("document.querySelectorAll('[data-run=fedcor]:not([hidden])').length") == 0
    assert opened.run("document.querySelector('[data-strategy=fedcor]').getAttribute('aria-pressed')") == "false"
    click(opened, "[data-strategies=none]")
    assert sum(opened.run(TRACES % "random")) == 0
    click(opened, "[data-strategies=all]")
    assert sum(opened.run(TRACES % "fedcor")) >= 8


@pytest.mark.slow
def test_with_a_clock_curves_go_over_simulated_seconds(chromium, tmp_path):
    timed, plain = made_up.run("random", 0.6, seconds=3.0), made_up.run("random", 0.6)
    (tmp_path / "page.html").write_text(
        html.render([made_up.chapter([one]) for one in (timed, plain)]), encoding="utf-8"
    )
    chromium.errors.clear()
    chromium.open(tmp_path / "page.html")
    click(chromium, "[data-control=x][data-value='simulated seconds']")
    ends = chromium.run(
        "[...document.querySelectorAll('.plots.curves')].map(o => o.querySelector('.canvas').data.at(-1).x.at(-1))"
    )
    assert ends == [60, 20] and chromium.errors == []  # the setting without a clock stays over rounds


@pytest.mark.slow
def test_curves_go_over_rounds_megabytes_and_seconds(shown):
    opened = shown()
    ends = {}
    for name in ("megabytes", "seconds", "round"):
        click(opened, f"[data-control=x][data-value={name}]")
        ends[name] = opened.run(f"{FIRST}.data.at(-1).x.at(-1)")
        assert name[:5] in opened.run(f"{FIRST}.layout.xaxis.title.text")
        assert opened.run("document.querySelector('[data-control=x][aria-pressed=true]').dataset.value") == name
    assert ends == {"round": 20, "megabytes": 40, "seconds": 10}


@pytest.mark.slow
def test_bands_are_chosen_and_stay_where_the_measure_can_be(shown):
    opened = shown()
    widths = {}
    for band in ("none", "interval", "deviation", "range"):
        click(opened, f"[data-control=band][data-value={band}]")
        widths[band] = opened.run(
            f"(([low, high, ...more]) => more.length > 2 ? high.y.reduce((sum, y, i) => sum + y - low.y[i], 0) : 0)"
            f"({FIRST}.data)"
        )
    assert 0 == widths["none"] < widths["interval"] < widths["deviation"] < widths["range"]
    least = (
        "Math.min(...[...document.querySelectorAll('.plots.curves .canvas')].flatMap(c => c.data.flatMap(t => t.y)))"
    )
    assert opened.run(least) >= 0


@pytest.mark.slow
def test_a_drag_zooms_and_stays_when_a_strategy_is_hidden(shown):
    opened = shown()
    opened.run(f"{FIRST}.scrollIntoView({{block: 'center'}})")
    left, top, width, height = opened.run(
        f"(r => [r.left, r.top, r.width, r.height])({FIRST}.querySelector('.nsewdrag').getBoundingClientRect())"
    )
    before = opened.run(f"{FIRST}._fullLayout.xaxis.range")
    opened.drag(left + 0.25 * width, top + 0.3 * height, left + 0.5 * width, top + 0.7 * height)
    opened.run("new Promise(done => setTimeout(done, 400))")
    zoomed = opened.run(f"{FIRST}._fullLayout.xaxis.range")
    assert before[0] < zoomed[0] < zoomed[1] < before[1]
    click(opened, "[data-strategy=random]")
    assert opened.run(f"{FIRST}._fullLayout.xaxis.range") == pytest.approx(zoomed)
    click(opened, "[data-control=x][data-value=megabytes]")
    assert opened.run(f"{FIRST}._fullLayout.xaxis.range")[1] > 39


@pytest.mark.slow
def test_a_pointer_is_told_what_it_is_at(shown):
    opened = shown()
    opened.run(f"{FIRST}.scrollIntoView({{block: 'center'}})")
    x, y = opened.run(
        f"(() => {{ const g = {FIRST}, r = g.querySelector('.nsewdrag').getBoundingClientRect(), t = g.data.at(-1);"
        "return [r.left + g._fullLayout.xaxis.d2p(t.x[10]), r.top + g._fullLayout.yaxis.d2p(t.y[10])]; })()"
    )
    opened.move(x - 3, y)
    opened.move(x, y)
    opened.run("new Promise(done => setTimeout(done, 300))")
    assert "oort" in opened.run(f"{FIRST}.querySelector('.hoverlayer').textContent")


@pytest.mark.slow
def test_maps_follow_their_choices(shown):
    opened = shown()
    cells = "document.querySelector('[data-plots=cohorts] .canvas').data[0].z"
    assert opened.run(f"{cells}.flat().reduce((a, b) => a + b)") == 60  # three of twelve, twenty times
    before = opened.run(cells)
    orders = [("cohorts-order-0", "id"), ("cohorts-order-0", "often")]
    for pick, value in (("cohorts-run-0", "oort"), ("cohorts-seed-0", "3"), *orders):
        opened.run(
            f"(s => {{ s.value = '{value}'; s.dispatchEvent(new Event('change')); }})"
            f"(document.querySelector('[data-pick={pick}]'))"
        )
        assert opened.run(cells) != before
        before = opened.run(cells)
    sums = [sum(line) for line in before]
    assert sums == sorted(sums, reverse=True) and sum(sums) == 60


@pytest.mark.slow
def test_a_heading_sorts_its_table_by_keyboard(shown):
    opened = shown(unfolded=False)
    heading = "document.querySelectorAll('table thead th')[1]"
    for expected, way in (("random", "ascending"), ("fedcor", "descending")):
        opened.run(f"{heading}.querySelector('button').focus()")
        opened.press("Enter")
        assert opened.run("document.querySelector('table tbody tr th').textContent") == expected
        assert opened.run(f"{heading}.getAttribute('aria-sort')") == way
    assert opened.run("document.querySelectorAll('table.verdict [aria-sort]').length") == 1


@pytest.mark.slow
@pytest.mark.parametrize("window", [{"width": 1440, "height": 900}, {"width": 390, "height": 844, "phone": True}])
def test_the_first_screen_has_the_verdict(shown, window):
    opened = shown(unfolded=False, **window)
    bottom = "document.querySelector('.verdict tbody').getBoundingClientRect().bottom"
    assert opened.run(bottom) < window["height"]
    cells = "[...document.querySelectorAll('.verdict tbody tr:first-child > *')].filter(one => one.offsetWidth)"
    assert opened.run(f"{cells}.map(one => one.textContent)[0]") == "fedcor"
    assert "better" in opened.run(f"{cells}.map(one => one.textContent)")


@pytest.mark.slow
def test_lines_are_named_at_their_ends_and_no_name_covers_another(shown):
    opened = shown(unfolded=False)
    names = f"[...{FIRST}.querySelectorAll('.annotation-text')]"
    assert sorted(opened.run(f"{names}.map(one => one.textContent)")) == ["fedcor", "fl_dp3s", "oort", "random"]
    tops = sorted(opened.run(f"{names}.map(one => one.getBoundingClientRect().top)"))
    assert all(below - above > 10 for above, below in itertools.pairwise(tops))


@pytest.mark.slow
def test_a_section_link_unfolds_its_section_and_the_bar_stays(chromium, tmp_path):
    path = tmp_path / "report.html"
    path.write_text(html.render(made_up.chapters()[:1]), encoding="utf-8")
    chromium.errors.clear()
    chromium.open(path)
    assert not chromium.run("document.getElementById('selection-0').open")
    click(chromium, "#sections a[href='#selection-0']")
    chromium.run("new Promise(done => setTimeout(done, 300))")
    assert chromium.run("document.getElementById('selection-0').open") and chromium.errors == []
    assert chromium.run("document.querySelector('[data-plots=selection] .canvas').data.length") > 0
    assert chromium.run("document.getElementById('sections').getBoundingClientRect().top") == 0


@pytest.mark.slow
def test_hiding_all_strategies_says_why_nothing_is_shown(shown):
    opened = shown(unfolded=False)
    text = "document.getElementById('empty').textContent"
    assert opened.run(text) == ""
    click(opened, "[data-strategies=none]")
    assert "all strategies are hidden" in opened.run(text)
    assert opened.run(f"{FIRST}.parentElement.hidden")
    click(opened, "[data-strategies=all]")
    assert opened.run(text) == "" and not opened.run(f"{FIRST}.parentElement.hidden")


@pytest.mark.slow
def test_controls_without_an_effect_are_not_shown(chromium, tmp_path):
    path = tmp_path / "report.html"
    path.write_text(html.render([made_up.chapter([made_up.run("random", 0.6, seeds=1)])]))
    chromium.errors.clear()
    chromium.open(path)
    for control in ("[data-strategy]", "[data-control=band]", "[data-control=smooth]", ".sort", "select"):
        shown = chromium.run(f"[...document.querySelectorAll(`{control}`)].length")
        assert shown == (1 if control == "select" else 0), control  # the order of the map's rows is a choice
    assert chromium.errors == []


@pytest.mark.slow
def test_a_phone_has_room_for_all_of_it(shown):
    opened = shown(width=360, height=740, phone=True)
    assert opened.run("document.documentElement.scrollWidth") <= 360 and overflows(opened) == []
    assert opened.run(f"{FIRST}._fullLayout.width") <= 360 and opened.run(f"{FIRST}._fullLayout.dragmode") is False


@pytest.mark.slow
def test_names_without_an_end_break_no_page(chromium, tmp_path):
    names = ["x" * 120, '<img src=x onerror=alert(1)> & "$a$" |', "%{y} {z}"]
    runs = [made_up.run(name, 0.5 + 0.1 * i, algo="random") for i, name in enumerate(names)]
    path = tmp_path / "report.html"
    path.write_text(html.render([made_up.chapter(runs, title="t" * 200)]), encoding="utf-8")
    chromium.errors.clear()
    chromium.open(path, width=360, height=740, phone=True)
    chromium.run(UNFOLD)
    assert overflows(chromium) == [] and chromium.errors == []
    shown = chromium.run("[...document.querySelectorAll('[data-strategy]')].map(one => one.textContent)")
    assert shown == names
    ticks = chromium.run("document.querySelector('[data-plots=pairs] .yaxislayer-above').textContent")
    assert names[1] in ticks


@pytest.mark.slow
def test_the_dark_is_dark_and_changes_while_the_page_is_open(shown):
    opened = shown(dark=True)
    look = (
        f"[getComputedStyle(document.body).backgroundColor, {FIRST}.data.at(-1).line.color,"
        f" {FIRST}._fullLayout.font.color]"
    )
    dark = opened.run(look)
    opened.media(dark=False)
    opened.run("new Promise(done => setTimeout(done, 200))")
    light = opened.run(look)
    assert dark[0] == "rgb(20, 23, 26)" and light[0] == "rgb(255, 255, 255)"
    assert all(one != other for one, other in zip(dark, light))


@pytest.mark.slow
def test_on_paper_it_is_dark_on_white_as_wide_as_a_page_and_short(shown):
    opened = shown(unfolded=False, dark=True)
    opened.run(
        "addEventListener('beforeprint', () => { window.printed = [getComputedStyle(document.body).backgroundColor,"
        f" {FIRST}._fullLayout.width, {FIRST}._fullLayout.font.color]; }})"
    )
    pdf = opened.pdf()
    assert pdf.startswith(b"%PDF") and len(re.findall(rb"/Type\s*/Page\b", pdf)) <= 4
    assert opened.run("window.printed") == ["rgb(255, 255, 255)", 680, "#1c2024"]
    assert opened.run(f"{FIRST}._fullLayout.font.color") == "#e6e9ec" and opened.run(f"{FIRST}._fullLayout.width") > 900
