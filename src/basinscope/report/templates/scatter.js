"use strict";
// One column of the runs over another, as an SVG. Every text goes in as text, never as HTML.
(() => {
  const WIDTH = 640, HEIGHT = 360, LEFT = 76, RIGHT = 14, TOP = 12, BOTTOM = 46, MOST = 2000;
  const SVG = "http://www.w3.org/2000/svg", TONES = { ok: "s6", doubtful: "s2", failed: "s3" };

  const make = (tag, attributes = {}, words = "") => {
    const node = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    if (words) node.textContent = words;
    return node;
  };
  // Round values between two ends, about five of them; powers of ten where the axis is logarithmic and long enough.
  const ticks = (low, high, log) => {
    if (log && high / low > 30) {
      const first = Math.ceil(Math.log10(low) - 1e-9), last = Math.floor(Math.log10(high) + 1e-9);
      const stride = Math.max(1, Math.ceil((last - first + 1) / 6));
      return Array.from({ length: Math.floor((last - first) / stride) + 1 }, (_, k) => 10 ** (first + k * stride));
    }
    const rough = (high - low) / 5, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 2.5, 5, 10].map((size) => size * power).find((size) => size >= rough * 0.999);
    const found = [];
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high * (1 + 1e-9) + 1e-12; k++) found.push(Number((k * step).toPrecision(12)));
    return found;
  };
  const scale = (values, log) => {
    let low = Math.min(...values), high = Math.max(...values);
    const size = log ? Math.log : (value) => value, back = log ? Math.exp : (value) => value;
    const room = 0.06 * (size(high) - size(low)) || (log ? 0.1 : 0.1 * Math.abs(high) || 1);
    [low, high] = [back(size(low) - room), back(size(high) + room)];
    return { low, high, log, at: (value) => (size(value) - size(low)) / (size(high) - size(low)) };
  };

  // The picture of runs by two axes {key, title, log}, and what is to be said of it; `tell` is called with the values
  // of the run that is pointed at.
  window.basinscopeScatter = (runs, x, y, text, tell) => {
    const usable = (value, log) => typeof value === "number" && Number.isFinite(value) && (!log || value > 0);
    const points = runs.filter((run) => usable(run.values[x.key], x.log) && usable(run.values[y.key], y.log)).slice(0, MOST);
    const left = runs.length - points.length;
    const without = left ? `; ${left.toLocaleString("en")} without such ${x.log || y.log ? "positive " : ""}numbers` : "";
    if (!points.length) return { picture: null, said: `No run has both ${x.title} and ${y.title}${x.log || y.log ? " as positive numbers" : ""}.` };
    const said = `${points.length.toLocaleString("en")} ${points.length === 1 ? "run" : "runs"}, ${y.title} over ${x.title}${without}. Point at one for its values.`;
    const across = scale(points.map((run) => run.values[x.key]), x.log), up = scale(points.map((run) => run.values[y.key]), y.log);
    const px = (value) => (LEFT + (WIDTH - LEFT - RIGHT) * across.at(value)).toFixed(1);
    const py = (value) => (HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * Math.min(1, Math.max(0, up.at(value)))).toFixed(1);
    const picture = make("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "group", "aria-label": said });
    for (const value of ticks(up.low, up.high, y.log)) {
      picture.append(make("path", { class: "grid", d: `M${LEFT} ${py(value)}H${WIDTH - RIGHT}` }),
        make("text", { x: LEFT - 8, y: Number(py(value)) + 4, "text-anchor": "end" }, text(value)));
    }
    for (const value of ticks(across.low, across.high, x.log)) {
      picture.append(make("path", { class: "tick", d: `M${px(value)} ${HEIGHT - BOTTOM}v5` }),
        make("text", { x: px(value), y: HEIGHT - BOTTOM + 19, "text-anchor": "middle" }, text(value)));
    }
    picture.append(make("path", { class: "axis", d: `M${LEFT} ${HEIGHT - BOTTOM}H${WIDTH - RIGHT}` }),
      make("text", { class: "label", x: (LEFT + WIDTH - RIGHT) / 2, y: HEIGHT - 6, "text-anchor": "middle" }, x.title),
      make("text", { class: "label", transform: `translate(14 ${(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)`, "text-anchor": "middle" }, y.title));
    for (const run of points) {
      const at = [run.values[x.key], run.values[y.key]], error = run.values[`${y.key}_stderr`];
      const style = TONES[run.values[`${y.key}_verdict`]] || "s1";
      const spread = typeof error === "number" && error > 0 ? ` ± ${Number(error.toPrecision(2))}` : "";
      const words = `${run.name}: ${x.title} ${text(at[0])}, ${y.title} ${text(at[1])}${spread}`;
      const link = make("a", { href: `/run/${run.id}`, "aria-label": words });
      if (spread && (!y.log || at[1] > 1.645 * error)) link.append(make("path", { class: `whisker ${style}`, d: `M${px(at[0])} ${py(at[1] - 1.645 * error)}V${py(at[1] + 1.645 * error)}` }));
      link.append(make("circle", { class: `point ${style}`, cx: px(at[0]), cy: py(at[1]), r: 5 }));
      link.append(make("title", {}, words));
      for (const name of ["pointerenter", "focus"]) link.addEventListener(name, () => tell(words));
      picture.append(link);
    }
    return { picture, said };
  };
})();
