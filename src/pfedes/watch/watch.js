"use strict";
// Everything that arrives may come from a stranger's files: it becomes text, never markup.

const SVG = "http://www.w3.org/2000/svg";
const MOST_POINTS = 301; // what the server sends at most, and one to spare
const byId = (id) => document.getElementById(id);
const overview = { columns: [], rows: new Map(), sort: { column: 0, sign: 1 } };
let points = [];
let rounds = 0;
let source = null;
let wantsFocus = false; // after a choice, which a keyboard may have made

function element(tag, content = "", attributes = {}) {
  const made = document.createElement(tag);
  made.textContent = content;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

function shape(tag, attributes, content = "") {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.textContent = content;
  return made;
}

// Writes only what differs: a reader's selection and a screen reader's place stay where they are.
function say(node, content) {
  if (node.textContent !== content) node.textContent = content;
}

function chosen() {
  const match = /^#run-([0-9a-f]{12})$/.exec(location.hash);
  return match ? match[1] : "";
}

// --- the overview ---

function headers(table, columns) {
  const row = table.tHead.rows[0];
  row.replaceChildren(
    ...columns.map(([name, numeric]) =>
      element("th", name, { scope: "col", ...(numeric ? { class: "number" } : {}) })
    )
  );
  return [...row.cells];
}

function greet(hello) {
  say(byId("version"), hello.version);
  say(byId("watched"), hello.directories.join(", "));
  headers(byId("people"), hello.federation_columns.map((name) => [name, false]));
  headers(byId("clients"), [["client", false], ["accuracy", true], ["version", true]]);
  headers(byId("troubles"), ["round", "client", "status", "reason"].map((name) => [name, false]));
  overview.rows.clear();
  byId("overview").tBodies[0].replaceChildren();
  if (overview.columns.length) return; // connected again: the buttons are there, and may be in use
  overview.columns = hello.columns;
  headers(byId("overview"), hello.columns).forEach((header, column) => {
    const button = element("button", header.textContent, { type: "button" });
    header.replaceChildren(button);
    button.addEventListener("click", () => {
      const same = overview.sort.column === column;
      overview.sort = { column, sign: same ? -overview.sort.sign : 1 };
      arrange();
    });
  });
}

function overviewRow(row) {
  const made = document.createElement("tr");
  overview.columns.forEach(([, numeric], column) => {
    const cell = element(column ? "td" : "th", "", column ? {} : { scope: "row" });
    if (numeric) cell.className = "number";
    if (column === 0) cell.append(element("a", "", { href: `#run-${row.id}` }));
    if (column === 2) cell.append(element("span"), element("progress", "", { "aria-hidden": "true" }));
    made.append(cell);
  });
  return made;
}

function updateRow(row) {
  const known = overview.rows.get(row.id);
  const node = known ? known.node : overviewRow(row);
  overview.rows.set(row.id, { node, cells: row.cells });
  row.cells.forEach(([content], column) => {
    const cell = node.cells[column];
    say(column === 0 || column === 2 ? cell.firstChild : cell, content);
  });
  node.cells[1].className = `name state-${row.state.replace(" ", "-")}`;
  const bar = node.querySelector("progress");
  bar.max = Math.max(1, row.progress[1]);
  bar.value = row.progress[0];
}

function compare(a, b) {
  if (a === null || b === null) return (a === null) - (b === null);
  if (typeof a === "number" && typeof b === "number") return overview.sort.sign * (a - b);
  return overview.sort.sign * String(a).localeCompare(String(b), "en", { numeric: true });
}

function arrange() {
  const { column, sign } = overview.sort;
  [...byId("overview").tHead.rows[0].cells].forEach((header, number) => {
    if (number !== column) header.removeAttribute("aria-sort");
    else header.setAttribute("aria-sort", sign === 1 ? "ascending" : "descending");
  });
  const body = byId("overview").tBodies[0];
  const sorted = [...overview.rows.values()].sort((a, b) => compare(a.cells[column][1], b.cells[column][1]));
  const nodes = sorted.map(({ node }) => node);
  if (nodes.length !== body.rows.length || nodes.some((node, n) => node !== body.rows[n])) {
    const focused = document.activeElement;
    body.append(...nodes);
    if (body.contains(focused)) focused.focus({ preventScroll: true }); // a moved element loses it
  }
}

function updateRows({ changed, gone, left_out: leftOut }) {
  for (const id of gone) {
    const row = overview.rows.get(id);
    if (row) row.node.remove();
    overview.rows.delete(id);
  }
  changed.forEach(updateRow);
  arrange();
  markChosen();
  const empty = "No run yet: those that begin will appear here.";
  const more = leftOut ? `${leftOut} more runs are not shown: name fewer directories.` : "";
  say(byId("overview-note"), overview.rows.size ? more : empty);
  // One run alone needs no choice.
  if (overview.rows.size === 1 && !chosen()) location.replace(`#run-${[...overview.rows.keys()][0]}`);
}

function markChosen() {
  for (const [id, { node }] of overview.rows) {
    if (id === chosen()) node.setAttribute("aria-current", "true");
    else node.removeAttribute("aria-current");
  }
  byId("detail").hidden = !overview.rows.has(chosen());
}

// --- one run ---

function fill(table, rows) {
  const body = table.tBodies[0];
  while (body.rows.length > rows.length) body.deleteRow(-1);
  rows.forEach((row, number) => {
    const node = body.rows[number] || body.insertRow();
    row.forEach((content, column) => {
      if (!node.cells[column]) {
        const cell = element(column ? "td" : "th", "", column ? {} : { scope: "row" });
        const header = table.tHead && table.tHead.rows[0].cells[column];
        if (header) cell.className = header.className;
        node.append(cell);
      }
      const cell = node.cells[column];
      say(cell, content);
      if (table.tHead && cell.className !== "number") cell.className = content.length > 24 ? "long" : "name";
    });
  });
}

function updateDetail(detail) {
  if (detail.id !== chosen()) return;
  document.title = `${detail.progress[0]}/${detail.progress[1]} ${detail.name} - pfedes`;
  say(byId("detail-title"), `${detail.name}: ${detail.state}`);
  for (const name of ["problem", "warning"]) {
    say(byId(name), detail[name]);
    byId(name).hidden = !detail[name];
  }
  const tiles = byId("tiles");
  while (tiles.children.length > detail.tiles.length) tiles.lastChild.remove();
  detail.tiles.forEach(([name, content], number) => {
    if (!tiles.children[number]) {
      const tile = document.createElement("div");
      tile.append(element("dt"), element("dd"));
      tiles.append(tile);
    }
    say(tiles.children[number].firstChild, name);
    say(tiles.children[number].lastChild, content);
  });
  const shown = (rows) => rows.map((row) => row.map(([content]) => content));
  fill(byId("clients"), shown(detail.clients));
  say(byId("more-clients"), detail.more_clients ? `and ${detail.more_clients} more, better off` : "");
  fill(byId("troubles"), detail.troubles);
  byId("no-troubles").hidden = detail.troubles.length > 0;
  byId("troubles").parentElement.hidden = detail.troubles.length === 0;
  fill(byId("facts"), detail.facts);
  // Before the first round, and of what cannot be read, there is nothing to show.
  byId("standings").hidden = detail.clients.length === 0;
  byId("about").hidden = detail.facts.length === 0;
  byId("federation").hidden = !detail.is_federation;
  fill(byId("people"), shown(detail.people));
  say(byId("server"), detail.server ? `The server ${detail.server}.` : "");
  byId("warnings").replaceChildren(...detail.warnings.map((line) => element("li", line)));
  rounds = detail.progress[1];
  draw();
  if (wantsFocus) byId("detail-title").focus();
  wantsFocus = false;
}

function updatePoints({ reset, points: more }) {
  points = (reset ? more : points.concat(more)).slice(-MOST_POINTS);
  draw();
}

function draw() {
  const [width, height, left, bottom, top, right] = [640, 300, 70, 44, 12, 26];
  const last = points.length ? points[points.length - 1][0] : 0;
  const most = Math.max(1, rounds, last);
  const x = (round) => left + ((width - left - right) * round) / most;
  const y = (accuracy) => height - bottom - (height - bottom - top) * accuracy;
  const parts = [];
  for (const level of [0, 0.2, 0.4, 0.6, 0.8, 1]) {
    parts.push(shape("line", { class: "gridline", x1: left, x2: width - right, y1: y(level), y2: y(level) }));
    parts.push(shape("text", { x: left - 8, y: y(level) + 4, "text-anchor": "end" }, `${Math.round(100 * level)} %`));
  }
  const step = niceStep(most / 6);
  for (let round = 0; round <= most; round += step) {
    parts.push(shape("text", { x: x(round), y: height - bottom + 18, "text-anchor": "middle" }, String(round)));
  }
  parts.push(shape("text", { x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }, "round"));
  const known = points.filter(([, accuracy]) => accuracy !== null);
  parts.push(shape("polyline", { class: "line", points: known.map(([r, a]) => `${x(r)},${y(a)}`).join(" ") }));
  if (known.length) {
    const [round, accuracy] = known[known.length - 1];
    parts.push(shape("circle", { class: "dot", cx: x(round), cy: y(accuracy), r: 4 }));
  }
  const picture = shape("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  picture.append(...parts);
  byId("curve").hidden = points.length === 0;
  const frame = byId("curve").firstElementChild;
  frame.replaceChildren(picture);
  const end = known.length ? `, now ${(100 * known[known.length - 1][1]).toFixed(2)} % after round ${last}` : "";
  frame.setAttribute("aria-label", `Mean accuracy over clients by round${end}`);
}

function niceStep(least) {
  for (let unit = 1; ; unit *= 10) {
    for (const factor of [1, 2, 5]) if (unit * factor >= least) return unit * factor;
  }
}

// --- the connection ---

function connection(kind, content) {
  byId("connection").className = kind;
  say(byId("connection"), content);
}

function connect() {
  if (source) source.close();
  points = [];
  rounds = 0;
  const run = chosen();
  source = new EventSource(run ? `events?run=${run}` : "events");
  const on = (name, handle) =>
    source.addEventListener(name, (event) => {
      connection("live", "Live: this page follows the runs.");
      handle(JSON.parse(event.data));
    });
  on("hello", greet);
  on("rows", updateRows);
  on("detail", updateDetail);
  on("points", updatePoints);
  on("work", ({ text }) => say(byId("work"), text));
  source.addEventListener("error", () =>
    connection("lost", "Connection lost: what is shown may be old. Is 'pfedes watch' still running?")
  );
}

byId("overview").addEventListener("click", (event) => {
  if (event.target.closest("a")) wantsFocus = true;
});
addEventListener("hashchange", () => {
  if (location.hash && !location.hash.startsWith("#run-")) return; // the link to the content
  connect();
  byId("detail").hidden = true;
  byId("work").textContent = "";
});
connect();
