"""A parser that accepts only pages that are well formed and load nothing."""

from __future__ import annotations

from html.parser import HTMLParser


class Balanced(HTMLParser):
    """Fail on a tag that is not closed, or closed twice, or that loads something."""

    VOID = ("meta",)

    def __init__(self):
        super().__init__()
        self.open, self.links, self.ids, self.tags = [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        attributes = dict(attrs)
        assert "src" not in attributes
        if tag == "a":
            self.links.append(attributes["href"])
        if "id" in attributes:
            self.ids.append(attributes["id"])
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        # SVG's shapes are empty elements.
        assert tag in (*self.VOID, "line", "circle", "rect", "path")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def parse(text: str) -> Balanced:
    """Parse a page to its end."""
    page = Balanced()
    page.feed(text)
    page.close()
    assert page.open == []
    assert not {"script", "link", "img", "iframe"} & set(page.tags)
    assert "url(" not in text and "@import" not in text
    return page
