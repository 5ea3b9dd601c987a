"use strict";
// A click on a title sorts the table by that column, a second one in reverse; unknown values are always last.
for (const table of document.querySelectorAll("table.sortable")) {
  const titles = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  const key = (row, column) => {
    const cell = row.cells[column];
    if (!cell.classList.contains("n")) return cell.textContent;
    return cell.dataset.value === undefined ? null : Number(cell.dataset.value);
  };
  const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b
    : String(a).localeCompare(String(b), "en", { numeric: true }));
  titles.forEach((title, column) => title.addEventListener("click", () => {
    const up = title.getAttribute("aria-sort") !== "ascending";
    for (const one of titles) one.removeAttribute("aria-sort");
    title.setAttribute("aria-sort", up ? "ascending" : "descending");
    const keyed = [...body.rows].map((row) => [key(row, column), row]);
    const known = keyed.filter(([value]) => value !== null).sort(([a], [b]) => (up ? compare(a, b) : compare(b, a)));
    body.append(...[...known, ...keyed.filter(([value]) => value === null)].map(([, row]) => row));
  }));
}
