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
