"""What a browser sends for a page's form that nobody has touched."""

from html.parser import HTMLParser


class _Form(HTMLParser):
    """The successful controls of the form with the id."""

    def __init__(self, form_id: str) -> None:
        super().__init__(convert_charrefs=True)
        self.form_id = form_id
        self.inside = False
        self.sent: dict[str, list[str]] = {}
        self.area: str | None = None
        self.text = ""
        self.select: str | None = None
        self.first: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag == "form":
            self.inside = found.get("id") == self.form_id
        name = found.get("name")
        if not self.inside:
            return
        if tag == "textarea":
            self.area, self.text = name, ""
        elif tag == "select":
            self.select, self.first = name, None
        elif tag == "option" and self.select:
            value = found.get("value") or ""
            if "selected" in found:
                self._add(self.select, value)
            elif self.first is None:
                self.first = value
        elif tag == "input" and name:
            self._input(name, found)

    def _input(self, name: str, found: dict[str, str | None]) -> None:
        kind = found.get("type", "text")
        if kind in ("checkbox", "radio"):
            if "checked" in found:
                self._add(name, found.get("value") or "on")
        elif kind not in ("submit", "button", "file"):
            # One line holds no line ends.
            self._add(name, (found.get("value") or "").replace("\r", "").replace("\n", ""))

    def handle_data(self, data: str) -> None:
        if self.area is not None:
            self.text += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self.inside = False
        elif tag == "textarea" and self.area is not None:
            lines = self.text.replace("\r\n", "\n").replace("\r", "\n").removeprefix("\n")
            self._add(self.area, lines.replace("\n", "\r\n"))
            self.area = None
        elif tag == "select" and self.select is not None:
            if self.select not in self.sent and self.first is not None:
                self._add(self.select, self.first)
            self.select = None

    def _add(self, name: str, value: str) -> None:
        self.sent.setdefault(name, []).append(value)


def untouched(page: str, form_id: str) -> dict[str, list[str]]:
    """Return {name: values} as the browser sends the page's form `form_id`."""
    form = _Form(form_id)
    form.feed(page)
    form.close()
    return form.sent
