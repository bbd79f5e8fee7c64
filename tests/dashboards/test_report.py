import copy
import html.parser
import json
import re

import pytest
from plotly.offline import get_plotlyjs

from dashboards.report import render_report, write_report
from hwprofiles.errors import InputError

EVIL = "<script>alert(1)</script></title></style><img src=x onerror=alert(2)>&\u2028"


class Page(html.parser.HTMLParser):
    """What a browser would see: elements with attributes, text by enclosing element, scripts."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.scripts, self.words, self._open = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._open = [tag] if tag in ("script", "style") else []
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_endtag(self, tag):
        self._open = []

    def handle_data(self, data):
        if self._open == ["script"]:
            self.scripts[-1] = (self.scripts[-1][0], self.scripts[-1][1] + data)
        elif not self._open:
            self.words.append(data)

    @property
    def text(self):
        return re.sub(r"\s+", " ", " ".join(self.words).replace("\u00a0", " ").replace("\u202f", " "))


@pytest.fixture
def page(plan_document):
    return Page(render_report(plan_document))


def test_same_document_same_bytes(plan_document, tmp_path):
    write_report(plan_document, tmp_path / "a.html")
    write_report(copy.deepcopy(plan_document), tmp_path / "b.html")
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_the_report_reads_what_json_gives_back(plan_document):
    assert render_report(json.loads(json.dumps(plan_document))) == render_report(plan_document)


def test_the_document_is_left_as_it_was(plan_document):
    before = copy.deepcopy(plan_document)
    render_report(plan_document)
    assert plan_document == before


def test_nothing_is_loaded_from_anywhere(plan_document, page):
    for tag, attributes in page.elements:
        assert "src" not in attributes, tag
        assert tag not in ("link", "iframe", "object", "embed", "img", "base"), tag
        assert attributes.get("href", "#").startswith("#"), attributes
        assert not [name for name in attributes if name.startswith("on")]
    style = render_report(plan_document).split("<style>")[1].split("</style>")[0]
    assert "url(" not in style
    assert "@import" not in style


def test_only_the_two_hashed_scripts_may_run(page):
    policy = next(a["content"] for tag, a in page.elements if tag == "meta" and "http-equiv" in a)
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-inline" not in policy.split("script-src")[1].split(";")[0]
    assert policy.count("sha256-") == 2
    runnable = [body for attributes, body in page.scripts if attributes.get("type") is None]
    assert len(runnable) == 2
    assert runnable[0] == get_plotlyjs()


def test_every_figure_is_there_with_a_fixed_name_and_readable_json(page):
    data = [(a["id"], json.loads(body)) for a, body in page.scripts if a.get("type") == "application/json"]
    assert [name for name, _ in data] == [
        f"figure-{name}-data"
        for name in (
            "ratios", "phases-time_s", "phases-traffic_bytes", "phases-flops", "windows", "roofline", "timeline",
        )
    ]  # fmt: skip
    assert all(figure["data"] and figure["layout"] for _, figure in data)
    ids = [a["id"] for _, a in page.elements if "id" in a]
    assert len(ids) == len(set(ids))
    assert {a["href"][1:] for tag, a in page.elements if tag == "a"} <= set(ids)


def test_text_of_the_user_never_becomes_markup(plan_document):
    document = plan_document | {"title": EVIL, "weak": EVIL, "strong": EVIL, "acceptance_rung": EVIL}
    document |= {"warnings": [EVIL], "settle": [EVIL], "interval_note": EVIL, "version": EVIL}
    document["scenario"] = {"tools": {EVIL: EVIL}}
    document["provenance"] = [{"input": EVIL, "value": EVIL, "tier": EVIL, "source": EVIL}]
    document["verdicts"]["time"] |= {"because": [EVIL], "critical": {EVIL: EVIL}, "strategy": EVIL}
    document["recommended"] |= {"strategy": EVIL, "objective": EVIL, "why": EVIL}
    document["strategies"][3] |= {"name": EVIL, "method": EVIL, "reasons": {"usd": EVIL}}
    for row in document["timeline"]:
        row |= {"label": EVIL}
    document["roofline"]["points"][0] |= {"label": EVIL, "bound": EVIL}
    document["ratios_to_strong_only"][EVIL] = document["ratios_to_strong_only"].pop("spec_agent")
    found = Page(render_report(document))
    assert not [tag for tag, _ in found.elements if tag == "img"]
    assert len(found.scripts) == 2 + 7
    assert sum(tag == "title" for tag, _ in found.elements) == 1
    for attributes, body in found.scripts:
        if attributes.get("type") == "application/json":
            assert not re.search("[<>&\u2028]", body)


def test_verdicts_come_first_and_in_plain_words(page):
    assert next(a["id"] for _, a in page.elements if "id" in a) == "answer"
    assert "SpecAgent takes 0.925 × the time of strong only (0.810 – 1.12) ." in page.text
    assert "cannot tell" in page.text
    assert "It saves 24.4 s of strong decode and spends 13.2 s on draft decode." in page.text
    assert re.search(r"Turns at\s+acceptance\s+0\.83\s+verbosity\s+1\.21", page.text)
    assert "SpecAgent: the ratio is not known" in page.text
    kinds = [a["class"] for tag, a in page.elements if tag == "article"]
    assert kinds == [f"verdict {k}" for k in ("cannot_tell", "wins", "loses", "cannot_tell", "cannot_tell", "loses")]


def test_recommendation_and_what_would_settle_it(page):
    assert "Recommended for time: SpecAgent, window 4" in page.text
    assert "Judging about 400 drafted steps" in page.text


def test_table_of_strategies_in_human_units(page):
    for words in ("Time per task s", "Memory traffic TB", "Compute PFLOP", "Energy kJ", "Success %"):
        assert words in page.text
    assert "31.0 27.3 – 35.6" in page.text  # 3.1e13 bytes and its interval


def test_what_is_not_known_says_why(plan_document):
    plan_document["strategies"][0]["reasons"]["usd"] = "nobody set a price"
    plan_document["strategies"][1]["traffic_bytes"] = {"value": None, "reason": "an API hides its traffic"}
    text = Page(render_report(plan_document)).text
    assert "nobody set a price" in text
    assert "an API hides its traffic" in text
    assert text.count("no price is set for h200 devices") == 1  # one note for the three strategies that share it


def test_no_ruler_where_the_ratio_is_not_known(plan_document, page):
    known = [v for v in plan_document["verdicts"].values() if v["ratio"] is not None]
    assert len([a for tag, a in page.elements if tag == "svg"]) == len(known) == len(plan_document["verdicts"]) - 1


def test_the_roofline_says_what_holds_a_point_far_below_its_roof(page):
    assert "fixed times per operation, such as kernel launches and the host" in page.text


def test_numbers_in_the_provenance_never_break(plan_document):
    plan_document["provenance"][0]["value"] = 140_000
    text = render_report(plan_document)
    assert "<td>140\u202f000</td>" in text


def test_the_rung_is_marked(page):
    assert [a for tag, a in page.elements if tag == "li" and a.get("aria-current") == "step"]
    assert "89 tasks done by both models" in page.text


def test_provenance_is_grouped_from_firm_to_soft(page):
    places = [
        page.text.index(note) for note in ("stated by the maker", "read off a real", "adjusted so", "nobody meas")
    ]
    assert places == sorted(places)


def test_scenario_is_shown_as_toml_with_the_unset_keys_named(page):
    assert 'hardware = "h200"' in page.text
    assert "# not set: load.arrival_rate_per_s, run.horizon_s" in page.text


def test_a_bare_document_is_enough(plan_document):
    found = Page(render_report({"strategies": plan_document["strategies"]}))
    assert "Strong only" in found.text
    assert [a for a, _ in found.scripts if a.get("type")] == []


@pytest.mark.parametrize("document", [{}, {"strategies": []}])
def test_no_strategies_is_one_clear_message(document):
    with pytest.raises(InputError, match="'strategies'"):
        render_report(document)


def test_an_unknown_verdict_names_the_nearest(plan_document):
    plan_document["verdicts"]["time"]["verdict"] = "win"
    with pytest.raises(InputError, match="did you mean 'wins'"):
        render_report(plan_document)


def test_a_file_that_cannot_be_written_is_one_clear_message(plan_document, tmp_path):
    with pytest.raises(InputError, match="cannot write the report"):
        write_report(plan_document, tmp_path / "missing" / "report.html")
