"""The style and the script of report.html, which has to open with no other file and no network."""

from __future__ import annotations

CSS = """
:root { color-scheme: light dark; --ink: #1d2125; --quiet: #5b6470; --paper: #ffffff; --card: #f5f6f8; --line: #d9dde2;
  --link: #0b62a8; --warn: #9a4a00; --good: #00634a; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ec; --quiet: #a3adb8; --paper: #15181b; --card: #1f2428; --line: #373e45; --link: #7cc0f5;
    --warn: #f0a860; --good: #63d0ad; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1200px; padding: 24px 20px 60px; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.55em; line-height: 1.25; margin: 0 0 4px; }
h2 { font-size: 1.2em; margin: 36px 0 10px; border-bottom: 1px solid var(--line); padding-bottom: 4px; }
h3 { font-size: 1em; margin: 0 0 4px; }
p { margin: 6px 0; max-width: 90ch; }
.quiet { color: var(--quiet); font-size: .92em; }
.answer { background: var(--card); border-left: 4px solid var(--good); padding: 10px 16px; margin: 16px 0;
  border-radius: 4px; }
.flag { border-left: 4px solid var(--warn); background: var(--card); padding: 8px 14px; margin: 10px 0;
  border-radius: 4px; }
.flag ul, .reasons { margin: 4px 0; padding-left: 20px; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 520px), 1fr)); gap: 16px;
  align-items: start; }
figure { margin: 0; background: var(--card); border-radius: 6px; padding: 10px; }
figure img { display: block; width: 100%; height: auto; background: #fff; border-radius: 4px; }
figcaption { margin-top: 6px; font-size: .9em; color: var(--quiet); }
.wide { overflow-x: auto; border: 1px solid var(--line); border-radius: 6px; max-height: 80vh; }
table { border-collapse: collapse; font-size: .86em; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: 4px 9px; text-align: left; border-bottom: 1px solid var(--line); vertical-align: top;
  white-space: nowrap; }
td.text { white-space: normal; min-width: 9em; max-width: 30em; }
td.number, th.number { text-align: right; }
thead th { position: sticky; top: 0; background: var(--card); z-index: 1; }
th button { all: unset; cursor: pointer; font-weight: 600; }
th button:focus-visible { outline: 2px solid var(--link); }
th[aria-sort=ascending] button::after { content: " \\25B2"; }
th[aria-sort=descending] button::after { content: " \\25BC"; }
tr.best td { font-weight: 600; }
.mark { color: var(--warn); }
a { color: var(--link); }
details summary { cursor: pointer; }
pre { white-space: pre-wrap; font-size: .85em; margin: 4px 0; max-height: 20em; overflow-y: auto; }
@media print { .wide { overflow: visible; max-height: none; } figure, .flag { break-inside: avoid; } }
"""

SCRIPT = """
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  table.querySelectorAll("th").forEach((head, at) => head.querySelector("button").addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    const key = row => row.cells[at].dataset.value;
    const rows = [...body.rows].sort((a, b) => {
      const x = key(a), y = key(b);
      if (x === "" || y === "") return (x === "") - (y === "");
      const numbers = head.classList.contains("number");
      return down * (numbers ? x - y : x.localeCompare(y, undefined, {numeric: true}));
    });
    for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down === 1 ? "ascending" : "descending");
    body.append(...rows);
  }));
}
"""
