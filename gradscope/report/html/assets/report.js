// The page is complete without this script; it adds zoom and hover, the searchable table, downloads and the theme button.
(() => {
  "use strict";
  const root = document.documentElement;
  const byId = (id) => document.getElementById(id);
  const themeChanged = [];

  // Theme --------------------------------------------------------------------------------------------------------
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
  const themeButton = byId("theme");
  const nameTheme = () => { themeButton.textContent = isDark() ? "Light" : "Dark"; themeButton.setAttribute("aria-label", `Switch to the ${isDark() ? "light" : "dark"} theme`); };
  themeButton.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.setItem("gradscope-theme", root.dataset.theme); } catch { /* not kept; still switched */ }
    nameTheme();
    themeChanged.forEach((react) => react());
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { nameTheme(); themeChanged.forEach((react) => react()); });
  nameTheme();
  byId("print").addEventListener("click", () => print());

  // Embedded data ------------------------------------------------------------------------------------------------
  const bytes = (id) => {
    const text = byId(id).textContent.trim();
    if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
    return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  };
  const unpacked = (id) => new Response(new Blob([bytes(id)]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  const save = (name, type, data) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([data], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };
  const download = byId("download-recording");
  if (download) download.addEventListener("click", () => save("run.json.gz", "application/gzip", bytes("gradscope-recording")));

  // The table of all modules ---------------------------------------------------------------------------------------
  const PAGE = 50;
  const shown = (value) => {
    if (value === null || value === undefined) return "–";
    if (typeof value === "string") return value;
    if (value === 0) return "0";
    const size = Math.abs(value);
    const text = Number.isInteger(value) || (size >= 1000 && size < 1e6) ? Math.round(value).toLocaleString("en") : Number(value.toPrecision(3)).toString();
    return (size >= 1e6 && !Number.isInteger(value)) || size < 1e-4 ? value.toExponential(2).replace("e+", "e") : text;
  };
  const CUT = 56;
  const cut = (text) => { const all = [...text]; return all.length > CUT ? `${all.slice(0, 27).join("")}…${all.slice(-28).join("")}` : text; };
  const spark = (points) => {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    const known = points.filter((value) => value !== null);
    svg.setAttribute("class", "spark");
    svg.setAttribute("viewBox", "0 0 84 22");
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", known.length ? `from 10^${known[0]} to 10^${known[known.length - 1]}` : "not measured");
    if (!known.length) return svg;
    const low = Math.min(...known), span = Math.max(Math.max(...known) - low, 1);
    let text = "", pen = "M";
    points.forEach((value, place) => {
      if (value === null) { pen = "M"; return; }
      text += `${pen}${(2 + (80 * place) / Math.max(points.length - 1, 1)).toFixed(1)} ${(19 - (16 * (value - low)) / span).toFixed(1)}`;
      pen = "L";
    });
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    path.setAttribute("d", text + (known.length === 1 ? "h3" : ""));
    svg.append(path);
    return svg;
  };

  const startTable = ({ columns, values, count, found }) => {
    const rows = Array.from({ length: count }, (_, place) => values.map((column) => column[place]));
    const table = byId("modules-table"), body = table.tBodies[0];
    const filter = byId("modules-filter"), status = byId("modules-status"), back = byId("modules-back"), next = byId("modules-next");
    const marked = new Set(found);
    let order = rows.map((_, place) => place), first = 0, sorted = -1, down = false;
    const cell = (column, value) => {
      const td = document.createElement("td");
      if (column.kind === "spark") { td.append(spark(value)); return td; }
      if (column.kind === "number") td.className = "number";
      const text = document.createElement("bdi");
      if (column.kind === "place") text.className = "place";
      text.textContent = column.kind === "number" ? shown(value) : cut(value) || (column.kind === "place" ? "(whole model)" : "");
      td.append(text);
      return td;
    };
    const show = () => {
      const part = order.slice(first, first + PAGE);
      body.replaceChildren(...part.map((place) => {
        const row = document.createElement("tr");
        row.id = `row-${place}`;
        if (marked.has(place)) row.className = "found";
        row.append(...columns.map((column, at) => cell(column, rows[place][at])));
        return row;
      }));
      status.textContent = order.length ? `${first + 1}–${first + part.length} of ${order.length}` : "no module matches";
      back.disabled = first === 0;
      next.disabled = first + PAGE >= order.length;
    };
    const arrange = () => {
      const wanted = filter.value.trim().toLowerCase();
      order = rows.map((_, place) => place).filter((place) => !wanted || columns.some((column, at) => column.kind !== "spark" && column.kind !== "number" && String(rows[place][at]).toLowerCase().includes(wanted)));
      if (sorted >= 0) {
        const key = (place) => { const value = rows[place][sorted]; return Array.isArray(value) ? value.at(-1) ?? null : value; };
        order.sort((one, two) => {
          const a = key(one), b = key(two);
          if (a === null || b === null) return (a === null) - (b === null) || one - two;
          const difference = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
          return (down ? -difference : difference) || one - two;
        });
      }
      first = 0;
      show();
    };
    filter.addEventListener("input", arrange);
    back.addEventListener("click", () => { first = Math.max(0, first - PAGE); show(); });
    next.addEventListener("click", () => { first += PAGE; show(); });
    [...table.tHead.rows[0].cells].forEach((head, at) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        down = sorted === at ? !down : columns[at].kind === "number";
        sorted = at;
        [...table.tHead.rows[0].cells].forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        arrange();
      });
    });
    const quoted = (value) => { const text = value === null ? "" : Array.isArray(value) ? value.map((item) => item ?? "").join(" ") : String(value); return `"${(/^[=+\-@\t\r]/.test(text) && typeof value === "string" ? "'" : "") + text.replaceAll('"', '""')}"`; };
    byId("modules-csv").addEventListener("click", () => save("modules.csv", "text/csv", [columns.map((column) => quoted(column.name)), ...order.map((place) => rows[place].map(quoted))].map((line) => line.join(",")).join("\r\n") + "\r\n"));
    byId("modules-json").addEventListener("click", () => save("modules.json", "application/json", JSON.stringify(order.map((place) => Object.fromEntries(columns.map((column, at) => [column.name, rows[place][at]]))), null, 1)));
    const jump = () => {
      const place = /^#row-(\d+)$/.exec(location.hash);
      if (!place || byId(location.hash.slice(1))) return;
      filter.value = "";
      arrange();
      first = Math.max(0, Math.floor(order.indexOf(Number(place[1])) / PAGE) * PAGE);
      show();
      byId(location.hash.slice(1))?.scrollIntoView({ block: "center" });
    };
    addEventListener("hashchange", jump);
    status.textContent = `1–${body.rows.length} of ${rows.length}`;
    next.disabled = rows.length <= body.rows.length;
    back.disabled = true;
    if (body.rows.length < rows.length && body.rows.length !== PAGE) show();
    jump();
  };

  // Charts ---------------------------------------------------------------------------------------------------------
  const colour = (role) => {
    const [name, alpha] = role.slice(1).split("/");
    const value = getComputedStyle(root).getPropertyValue(`--${name}`).trim();
    if (!alpha) return value;
    const [red, green, blue] = [1, 3, 5].map((at) => parseInt(value.slice(at, at + 2), 16));
    return `rgba(${red},${green},${blue},${alpha})`;
  };
  const coloured = (value, scale) => {
    if (value === "@diverging") return scale;
    if (typeof value === "string") return value.startsWith("@") ? colour(value) : value;
    if (Array.isArray(value)) return value.length && typeof value[0] === "number" ? value : value.map((item) => coloured(item, scale));
    if (value && typeof value === "object") return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, key === "text" || key === "ticktext" || key === "z" ? item : coloured(item, scale)]));
    return value;
  };
  const named = (trace, names) => (trace.text === "@names" ? { ...trace, text: trace.x ? trace.x.map((place) => names[place]) : names } : trace);
  const draw = async (box, page) => {
    const spec = page.charts[box.id];
    if (!spec || box.classList.contains("busy")) return;
    box.classList.add("busy");
    const live = box.querySelector(".live") ?? box.appendChild(Object.assign(document.createElement("div"), { className: "live", id: `${box.id}-live` }));
    const { data, layout } = coloured({ data: spec.data, layout: spec.layout }, page.scale);
    const names = page.names[spec.names.x], rowNames = page.names[spec.names.y];
    if (rowNames) data[0].customdata = data[0].z.map((row, y) => row.map((_, x) => `${rowNames[y]}, ${names[x]}`));
    layout.height = box.clientHeight;
    await Plotly.react(live, data.map((trace) => named(trace, names)), layout, page.config);
    live.setAttribute("role", "group");
    live.setAttribute("aria-label", `${box.dataset.title}, interactive`);
    box.classList.add("ready");
    box.classList.remove("busy");
    if (!performance.getEntriesByName("gradscope-interactive").length) performance.mark("gradscope-interactive");
  };
  const start = async () => {
    const page = JSON.parse(await unpacked("gradscope-page"));
    if (page.table) startTable(page.table);
    root.dataset.ready = "table";
    if (byId("gradscope-plotly")) {
      const script = document.createElement("script");
      script.textContent = await unpacked("gradscope-plotly");
      document.head.append(script);
      const boxes = [...document.querySelectorAll(".chart[id]")];
      const watch = new IntersectionObserver((seen) => seen.filter((entry) => entry.isIntersecting).forEach((entry) => { watch.unobserve(entry.target); draw(entry.target, page); }), { rootMargin: "300px" });
      boxes.forEach((box) => watch.observe(box));
      themeChanged.push(() => boxes.filter((box) => box.classList.contains("ready")).forEach((box) => draw(box, page)));
    }
    root.dataset.ready = "all";
  };
  requestAnimationFrame(() => setTimeout(start, 0));
})();
