"""What tests read out of a page."""

from html.parser import HTMLParser

VOID = {"meta", "br", "link", "input"}


class Reader(HTMLParser):
    """Checks that every tag is closed, and keeps elements, texts and tables in their order."""

    def __init__(self, page: str):
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[list[str]] = []
        self.text = ""
        """What people see."""
        self.texts: dict[str, str] = {}
        """The text right inside each kind of element."""
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert not self._open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        inside = self._open[-1] if self._open else ""
        self.texts[inside] = self.texts.get(inside, "") + data
        if inside not in ("style", "script"):
            self.text += data
        if "td" in self._open or "th" in self._open:
            self.rows[-1][-1] = f"{self.rows[-1][-1]} {data}".strip()

    def find(self, tag, **wanted):
        return [a for t, a in self.elements if t == tag and all(a.get(k) == v for k, v in wanted.items())]
