"""Writes the golden files of the report: `python -m tests.report.golden`, then read the difference in review."""

from pathlib import Path

from tests.report import records

from gangline.report.comparison.compare import compare
from gangline.report.comparison.pages import render_html_comparison, render_markdown_comparison
from gangline.report.comparison.text import render_comparison
from gangline.report.run.html import render_html
from gangline.report.run.junit import render_junit
from gangline.report.run.markdown import render_markdown
from gangline.report.run.terminal import one_line, page

FOLDER = Path(__file__).parents[1] / "golden" / "report"


def drawn() -> dict[str, str]:
    """File name to text, of every surface."""
    base = records.passed()
    comparison = compare(base, records.refused())
    texts = {
        "refused.html": render_html(records.refused(), base),
        "diff-refused.html": render_html_comparison(comparison),
        "diff-refused.md": render_markdown_comparison(comparison),
        "diff-refused-80.txt": render_comparison(comparison, width=80) + "\n",
    }
    for name in ("passed", "refused", "failed", "bare"):
        record = getattr(records, name)()
        texts |= {
            f"{name}.md": render_markdown(record),
            f"{name}.xml": render_junit(record),
            f"{name}.txt": page(record) + "\n\n" + one_line(record) + "\n",
        }
        texts[f"diff-{name}.txt"] = render_comparison(compare(base, record)) + "\n"
    return texts


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in drawn().items():
        (FOLDER / name).write_text(text, "utf-8")
