"use strict";
// The table of runs: kept as plain objects, drawn a hundred rows at a time. Every text goes in as text, never as HTML.
(() => {
  const PAGE = 100, MOST = 6;
  const COMMON = [["llc", "λ̂"], ["llc_verdict", "verdict"], ["llc_basin", "basin"], ["llc_drop", "drop"], ["llc_nbeta", "nβ"], ["llc_gamma", "γ"],
    ["half_soft_rank", "½ soft rank"], ["train_loss", "training loss"],
    ["validation_loss", "validation loss"], ["loss", "loss"], ["seconds", "seconds"]];
  const byId = (id) => document.getElementById(id);
  const runs = new Map();
  const chosen = new Set();
  let sort = { key: "updated", down: true }, shown = PAGE, ready = false, drawing = 0;
  let picked = [], offered = "", pictured = "";

  const make = (tag, props = {}, ...children) => {
    const node = Object.assign(document.createElement(tag), props);
    node.append(...children);
    return node;
  };
  const text = (value) => {
    if (value === undefined || value === null || value === "") return "–";
    if (typeof value !== "number") return String(value);
    if (Number.isInteger(value) && Math.abs(value) < 1e9) return value.toLocaleString("en");
    const size = Math.abs(value);
    return size !== 0 && (size < 1e-3 || size >= 1e7) ? value.toExponential(3) : String(Number(value.toPrecision(4)));
  };
  const value = (run, key) => (key in run && key !== "values" ? run[key] : run.values[key]);
  const prepared = (run) => {
    run.text = [run.name, run.group, run.status, run.kind, run.note, ...Object.entries(run.values).map(([k, v]) => `${k}=${v}`),
      run.values.llc_verdict, run.values.verdict].join(" ").toLowerCase();
    return run;
  };

  // A term of the filter: a comparison such as llc>26, width=64 or name=run, which holds for a text that is this word
  // or has it among its words; or else a word that a run's texts must hold.
  const ALIAS = { "λ": "llc", "λ̂": "llc", verdict: "llc_verdict", params: "parameters", "γ": "llc_gamma", "nβ": "llc_nbeta", gamma: "llc_gamma", nbeta: "llc_nbeta" };
  const TESTS = { ">": (a, b) => a > b, "<": (a, b) => a < b, ">=": (a, b) => a >= b, "<=": (a, b) => a <= b, "=": (a, b) => a === b };
  const term = (word) => {
    const parts = word.match(/^([^<>=]+)(>=|<=|>|<|=)(.+)$/);
    if (!parts) return { word, holds: (run) => run.text.includes(word) };
    const key = parts[1], number = Number(parts[3].replaceAll(",", ""));
    const values = (run) => [run.values[key], run.values[ALIAS[key]], key === "values" ? undefined : run[key]].filter((own) => own !== undefined);
    const holds = (run) => values(run).some((own) => typeof own === "number" ? TESTS[parts[2]](own, number)
      : parts[2] === "=" && [String(own), ...String(own).split(/\s+/)].some((text) => text.toLowerCase() === parts[3]));
    return { word, key, holds, known: (run) => values(run).length > 0, numeric: !Number.isNaN(number), ordered: parts[2] !== "=" };
  };
  const terms = () => byId("query").value.toLowerCase().split(/\s+/).filter(Boolean).map(term);
  const matching = () => {
    const asked = terms(), group = byId("group").value, status = byId("status").value;
    return [...runs.values()].filter((run) => (!group || run.group === group) && (!status || run.status === status) &&
      asked.every((each) => each.holds(run)));
  };
  // Why a filter leaves nothing, as far as one of its terms alone says.
  const reason = () => {
    for (const each of terms()) {
      if ([...runs.values()].some(each.holds)) continue;
      if (each.key && ![...runs.values()].some(each.known)) return `no run has a value “${each.key}”`;
      if (each.ordered && !each.numeric) return `“${each.word}” compares with no number`;
      return `no run matches “${each.word}”`;
    }
    return "no run matches all of it";
  };
  const columns = (rows) => {
    if (picked.length) return picked.map((name) => [name, titles[name] || name.replaceAll("_", " ")]);
    const names = new Set();
    for (const run of rows.slice(0, 400)) for (const name of Object.keys(run.values)) names.add(name);
    const common = COMMON.filter(([key]) => names.has(key));
    if (!byId("group").value) return common;
    const beside = (n) => ["_stderr", "_verdict", "_warnings"].some((end) => n.endsWith(end) && names.has(n.slice(0, -end.length)));
    const rest = [...names].filter((n) => !COMMON.some(([key]) => key === n) && !beside(n));
    return [...rest.slice(0, 12).map((n) => [n, n.replaceAll("_", " ")]), ...common];
  };
  const titles = Object.fromEntries(COMMON);
  // The chooser: a box for every column that some run has, and those of numbers for the two axes.
  const offer = () => {
    const names = new Map();
    for (const run of runs.values()) for (const [name, own] of Object.entries(run.values)) names.set(name, names.get(name) || typeof own === "number");
    const beside = (name) => ["_stderr", "_warnings"].some((end) => name.endsWith(end) && names.has(name.slice(0, -end.length)));
    const sorted = [...names.keys()].filter((name) => !beside(name)).sort();
    if (sorted.join("\n") === offered) return;
    offered = sorted.join("\n");
    byId("columns").replaceChildren(...sorted.map((name) => {
      const box = make("input", { type: "checkbox" });
      box.dataset.name = name;
      box.addEventListener("change", () => {
        if (!picked.length) picked = columns(ordered(matching())).map(([key]) => key);
        picked = box.checked ? [...picked, name] : picked.filter((key) => key !== name);
        draw();
      });
      return make("label", {}, box, make("span", { textContent: titles[name] || name.replaceAll("_", " ") }));
    }));
    for (const id of ["x", "y"]) {
      const before = asked[id] || byId(id).value, numeric = sorted.filter((name) => names.get(name));
      byId(id).replaceChildren(make("option", { value: "", textContent: "none" }),
        ...numeric.map((name) => make("option", { value: name, textContent: titles[name] || name.replaceAll("_", " ") })));
      byId(id).value = numeric.includes(before) ? before : "";
      if (byId(id).value === before) asked[id] = "";
    }
  };
  const scattered = (rows) => {
    const [x, y] = ["x", "y"].map((id) => byId(id).value);
    const now = JSON.stringify([x, y, ...TICKS.map((id) => byId(id).checked), ...(x && y ? rows.map((run) => [run.id, run.values[x], run.values[y]]) : [])]);
    if (now === pictured) return; // a picture that is pointed at stays
    pictured = now;
    byId("scatter").replaceChildren();
    if (!x || !y) { byId("reading").textContent = "Choose two columns; the runs that the filter leaves are drawn."; return; }
    const axis = (key, id) => ({ key, title: titles[key] || key.replaceAll("_", " "), log: byId(`${id}log`).checked });
    const drawn = window.basinscopeScatter(rows, axis(x, "x"), axis(y, "y"), text, (words) => { byId("reading").textContent = words; });
    byId("reading").textContent = drawn.said;
    if (drawn.picture) byId("scatter").replaceChildren(drawn.picture);
  };
  const ordered = (rows) => {
    const way = sort.down ? -1 : 1;
    return rows.sort((a, b) => {
      const x = value(a, sort.key), y = value(b, sort.key);
      if (x === y) return a.name < b.name ? -1 : 1;
      if (x === undefined) return 1;
      if (y === undefined) return -1;
      return typeof x === typeof y ? (x < y ? -way : way) : typeof x === "number" ? -1 : 1;
    });
  };

  const header = (shownColumns) => {
    const cells = [["name", "run"], ["group", "group"], ["status", "status"], ...shownColumns, ["updated", "updated"]];
    byId("head").replaceChildren(...cells.map(([key, title]) => {
      const button = make("button", { type: "button", textContent: title });
      button.addEventListener("click", () => {
        sort = { key, down: sort.key === key ? !sort.down : key !== "name" && key !== "group" };
        draw();
        const again = byId("head").querySelector(`[data-key="${CSS.escape(key)}"] button`);
        if (again) again.focus();
      });
      const cell = make("th", { scope: "col", className: ["name", "group", "status"].includes(key) ? "" : "n" }, button);
      cell.dataset.key = key;
      cell.setAttribute("aria-sort", sort.key === key ? (sort.down ? "descending" : "ascending") : "none");
      return cell;
    }));
  };
  const line = (run, shownColumns) => {
    const box = make("input", { type: "checkbox", checked: chosen.has(run.id) });
    box.addEventListener("change", () => choose(run.id, box));
    box.setAttribute("aria-label", `compare ${run.name}`);
    const own = make("a", { href: `/run/${run.id}` }, make("span", { textContent: run.name }));
    const name = make("td", { className: "name" }, make("div", { className: "choice" }, box, own));
    if (run.kind === "report" && run.status === "measured") name.append(make("a", { href: `/report/${run.id}`, className: "open", textContent: "report" }));
    if (run.note) name.append(make("span", { className: "note", textContent: run.note }));
    const tone = { ok: "ok", doubtful: "doubtful", failed: "failed", done: "ok", measured: "ok", diverged: "failed", damaged: "failed" };
    const badge = (word) => make("span", { className: `badge ${tone[word] || "plain"}`, textContent: word });
    const cells = shownColumns.map(([key]) => {
      const value = run.values[key], error = run.values[`${key}_stderr`];
      if (key.endsWith("verdict") && value) return make("td", { className: "n" }, badge(value));
      const written = text(value) + (typeof error === "number" && error > 0 ? ` ± ${Number(error.toPrecision(2))}` : "");
      return make("td", { className: "n", textContent: written });
    });
    const when = run.updated ? new Date(run.updated * 1000).toISOString().slice(0, 16).replace("T", " ") : "–";
    const row = make("tr", { className: chosen.has(run.id) ? "chosen" : "" }, name, make("td", { textContent: run.group }),
      make("td", {}, badge(run.status)), ...cells, make("td", { className: "n", textContent: when }));
    row.dataset.id = run.id;
    return row;
  };
  function draw() {
    const rows = ordered(matching()), shownColumns = columns(rows);
    const focused = document.activeElement && document.activeElement.closest("tr[data-id]");
    header(shownColumns);
    byId("body").replaceChildren(...rows.slice(0, shown).map((run) => line(run, shownColumns)));
    if (focused) {
      const box = byId("body").querySelector(`[data-id="${CSS.escape(focused.dataset.id)}"] input`);
      if (box) box.focus();
    }
    byId("more").hidden = rows.length <= shown;
    if (rows.length > shown) byId("more").textContent = `Show ${Math.min(PAGE, rows.length - shown)} more of ${rows.length}`;
    const none = rows.length === 0 && runs.size > 0 ? `: ${reason()}` : "";
    byId("summary").textContent = `${rows.length.toLocaleString("en")} of ${runs.size.toLocaleString("en")} runs${none}${ready ? "" : ", reading on …"}`;
    byId("nothing").hidden = !none;
    byId("nothing").textContent = none ? `Nothing to show${none}. Comparisons are written llc>26, gamma<2, verdict=ok; words are looked for in all texts.` : "";
    byId("clear").disabled = chosen.size === 0;
    for (const box of byId("columns").querySelectorAll("input")) box.checked = shownColumns.some(([key]) => key === box.dataset.name);
    scattered(rows);
    keepState();
    document.body.dataset.drawn = String(++drawing);
  }
  // What is shown stands in the address, after the #, so that it can be kept and sent; the server never sees it.
  const FIELDS = ["query", "group", "status", "x", "y"], TICKS = ["xlog", "ylog"];
  const asked = {};
  const keepState = () => {
    const state = new URLSearchParams();
    for (const id of FIELDS) if (asked[id] || byId(id).value) state.set(id, asked[id] || byId(id).value);
    for (const id of TICKS) if (byId(id).checked) state.set(id, "1");
    if (picked.length) state.set("columns", picked.join(","));
    if (sort.key !== "updated" || !sort.down) state.set("sort", (sort.down ? "-" : "") + sort.key);
    if (chosen.size) state.set("runs", [...chosen].join(","));
    const words = state.toString();
    if (words !== location.hash.slice(1)) history.replaceState(null, "", words ? `#${words}` : location.pathname + location.search);
  };
  const readState = () => {
    const state = new URLSearchParams(location.hash.slice(1));
    for (const id of FIELDS) {
      byId(id).value = state.get(id) || "";
      asked[id] = byId(id).value === (state.get(id) || "") ? "" : state.get(id); // a group that has not come yet
    }
    for (const id of TICKS) byId(id).checked = state.get(id) === "1";
    picked = (state.get("columns") || "").split(",").filter(Boolean);
    const key = state.get("sort") || "-updated";
    sort = { key: key.replace(/^-/, ""), down: key.startsWith("-") };
    chosen.clear();
    for (const id of (state.get("runs") || "").split(",").filter(Boolean).slice(0, MOST)) chosen.add(id);
  };

  let waiting = false;
  const soon = () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; options(); offer(); draw(); });
  };
  const options = () => {
    for (const key of ["group", "status"]) {
      const box = byId(key), words = [...new Set([...runs.values()].map((run) => run[key]))].sort();
      const now = [...box.options].slice(1).map((option) => option.value);
      if (words.join("\n") === now.join("\n")) continue;
      const before = asked[key] || box.value;
      box.replaceChildren(make("option", { value: "", textContent: "all" }), ...words.map((word) => make("option", { value: word, textContent: word })));
      box.value = words.includes(before) ? before : "";
      if (box.value === before) asked[key] = "";
    }
  };

  const choose = (id, box) => {
    if (chosen.has(id)) chosen.delete(id);
    else if (chosen.size < MOST) chosen.add(id);
    else { box.checked = false; byId("summary").textContent = `At most ${MOST} runs side by side`; return; }
    box.closest("tr").classList.toggle("chosen", chosen.has(id));
    byId("clear").disabled = chosen.size === 0;
    keepState();
    compare();
  };
  let comparisons = 0;
  const compare = async () => {
    const mine = ++comparisons;
    const query = [...chosen].map((id) => `run=${encodeURIComponent(id)}`).join("&");
    const answer = await fetch(`/compare?${query}`);
    const html = await answer.text();
    // The server escapes every name, and the page's policy lets no script in: this is its own HTML.
    if (mine === comparisons && answer.ok) byId("compare").innerHTML = html;
    document.body.dataset.compared = String(mine);
  };

  const studies = (list) => {
    const box = byId("studies");
    box.hidden = list.length === 0;
    box.replaceChildren(make("h2", { textContent: "Studies" }), make("ul", { className: "studies" }, ...list.map((study) => {
      const bar = make("progress", { max: Math.max(1, study.total), value: study.done });
      bar.setAttribute("aria-label", `${study.study}: ${study.done} of ${study.total} jobs`);
      const state = `${study.done} of ${study.total}${study.failed ? `, ${study.failed} failed` : ""}${study.running ? ", running" : ""}${study.left ? `, ${study.left}` : ""}`;
      return make("li", {}, make("span", {}, make("b", { textContent: study.study }), make("span", { className: "muted small", textContent: ` ${study.title || ""}` })), bar, make("span", { textContent: state }));
    })));
  };

  const csv = () => {
    const rows = ordered(matching());
    const names = [...new Set(rows.flatMap((run) => Object.keys(run.values)))];
    const cell = (word) => {
      if (word === undefined || word === null) return "";
      if (typeof word === "number") return String(word);
      const safe = /^[=+\-@\t\r]/.test(word) ? `'${word}` : String(word); // a spreadsheet must not take a name for a formula
      return `"${safe.replaceAll('"', '""')}"`;
    };
    const head = ["run", "group", "kind", "status", ...names].map(cell).join(",");
    return [head, ...rows.map((run) => [run.name, run.group, run.kind, run.status, ...names.map((n) => run.values[n])].map(cell).join(","))].join("\n") + "\n";
  };
  window.basinscopeCsv = csv;

  const start = () => {
    byId("controls").addEventListener("submit", (event) => event.preventDefault());
    readState();
    window.addEventListener("hashchange", () => { readState(); draw(); compare(); });
    for (const id of FIELDS) byId(id).addEventListener("input", () => { asked[id] = ""; shown = PAGE; draw(); });
    for (const id of TICKS) byId(id).addEventListener("change", draw);
    byId("usual").addEventListener("click", () => { picked = []; draw(); });
    byId("more").addEventListener("click", () => { shown += PAGE; draw(); });
    byId("clear").addEventListener("click", () => { chosen.clear(); draw(); compare(); });
    byId("csv").addEventListener("click", () => {
      const link = make("a", { href: URL.createObjectURL(new Blob([csv()], { type: "text/csv" })), download: "runs.csv" });
      link.click();
      URL.revokeObjectURL(link.href);
    });
    const source = new EventSource("/events");
    source.addEventListener("open", () => { byId("link").textContent = "live"; byId("link").className = "badge ok"; });
    source.addEventListener("error", () => { byId("link").textContent = "not connected"; byId("link").className = "badge doubtful"; });
    source.addEventListener("runs", (event) => {
      let mine = false;
      for (const run of JSON.parse(event.data)) { runs.set(run.id, prepared(run)); mine ||= chosen.has(run.id); }
      soon();
      if (mine) compare();
    });
    source.addEventListener("gone", (event) => {
      for (const id of JSON.parse(event.data)) { runs.delete(id); chosen.delete(id); }
      soon();
    });
    source.addEventListener("studies", (event) => studies(JSON.parse(event.data)));
    source.addEventListener("ready", () => { if (!ready && chosen.size) compare(); ready = true; soon(); });
  };
  start();
})();
