"use strict";
// Replay of a run: one state (frame, device, colors), two views drawn from it, and controls that change it.
(async () => {
  const byId = (name) => document.getElementById(`replay-${name}`);
  const content = JSON.parse(byId("data").textContent);
  if (!("DecompressionStream" in globalThis)) {
    byId("now").textContent = "The replay requires a browser of 2023 or later.";
    return;
  }
  const data = await unpack(content);
  const root = document.getElementById("replay");
  const slider = byId("slider"), play = byId("play"), tip = byId("tip"), deviceInput = byId("device");
  const frames = content.frames.length, devices = content.devices, links = content.links, k = content.k;
  const nodes = devices + (content.hub ? 1 : 0);
  const reducedMotion = matchMedia("(prefers-reduced-motion: reduce)"), dark = matchMedia("(prefers-color-scheme: dark)");
  const VIRIDIS = [[68, 1, 84], [71, 44, 122], [59, 81, 139], [44, 113, 142], [33, 144, 141], [39, 173, 129],
    [92, 200, 99], [170, 220, 50], [253, 231, 37]];
  const CROSSES = 1600, NUMBERED = 40, LEVELS = 6, WIDE = 20;
  const ELONGATED = 4; // longer over shorter side of the points above which the axes do not share a scale

  let frame = 0, blend = 0, playing = false, began = 0, pinned = -1, hovered = -1;
  let ink = {};
  const views = { graph: view("graph"), cloud: view("cloud"), strip: view("strip") };
  const edgesOf = Array.from({ length: nodes }, () => []);
  for (let e = 0; e < links; e++) {
    edgesOf[data.edgeA[e]].push(e);
    edgesOf[data.edgeB[e]].push(e);
  }
  const perPoint = data.cost.map((cost, i) => cost / data.size[i % devices]); // NaN and infinite stay unknown
  const shades = {
    cost: { values: perPoint, ...range(perPoint), title: "cost per point" },
    disagreement: { values: data.disagreement, ...range(data.disagreement), title: "total variation between a device and its neighbors" },
    sent: { values: data.sent, ...range(data.sent), title: "plain bytes since the last frame", whole: true },
    gtv: { values: data.gtv, ...range(data.gtv), title: "total variation of a link" },
  };

  const curve = chooseCurve();

  // Metric of the strip: the excess cost, or the total variation if it is known in more frames.
  function chooseCurve() {
    const known = (name) => content.frames.filter((one) => one[name] !== null).length;
    const excess = known("ratio_mean") >= known("gtv");
    const values = content.frames.map((one) => (excess ? (one.ratio_mean ?? NaN) - 1 : one.gtv ?? NaN));
    return { values, range: range(values), title: excess ? "cost above central k-means" : "total variation" };
  }

  async function unpack({ arrays, data: text }) {
    const raw = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const stream = new Blob([raw]).stream().pipeThrough(new DecompressionStream("gzip"));
    const bytes = await new Response(stream).arrayBuffer();
    const found = {};
    let start = 0;
    for (const [name, type, size] of arrays) {
      const kind = globalThis[type], end = start + size * kind.BYTES_PER_ELEMENT;
      found[name] = new kind(bytes.slice(start, end));
      start = end;
    }
    const step = content.devices * content.k * 2, all = found.centroids; // differences between frames to positions
    for (let i = step; i < all.length; i++) all[i] += all[i - step];
    return found;
  }

  function view(name) {
    const canvas = byId(name);
    return { canvas, pen: canvas.getContext("2d"), width: 0, height: 0, spots: [] };
  }

  // ------------------------------------------------------------------------------------------- numbers and colors

  function range(values) {
    let low = Infinity, high = -Infinity, least = Infinity;
    for (const value of values) {
      if (!Number.isFinite(value)) continue;
      low = Math.min(low, value);
      high = Math.max(high, value);
      if (value > 0) least = Math.min(least, value);
    }
    if (!(low <= high)) [low, high] = [0, 0];
    const log = high > WIDE * least;
    return { low: log ? Math.max(low, Math.max(least, 1e-6 * high)) : low, high, log };
  }

  function level({ low, high, log }, value) {
    if (!(high > low)) return value > 0 ? 1 : 0;
    const part = log ? Math.log(Math.max(value, low) / low) / Math.log(high / low) : (value - low) / (high - low);
    return Math.min(Math.max(part, 0), 1);
  }

  function color(part) {
    const at = part * (VIRIDIS.length - 1), i = Math.min(Math.floor(at), VIRIDIS.length - 2), t = at - i;
    return VIRIDIS[i].map((one, c) => Math.round(one + t * (VIRIDIS[i + 1][c] - one)));
  }

  function luminance(shade) { // relative luminance of WCAG 2.2
    const linear = shade.map((one) => (one <= 10 ? one / 3294.6 : ((one / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  }

  function show(value) {
    if (value === null || value === undefined || !Number.isFinite(value)) return "–";
    if (Number.isInteger(value)) return value.toLocaleString("en");
    return Math.abs(value) >= 1e4 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(4)));
  }

  function showBytes(value) {
    for (const unit of ["B", "kB", "MB", "GB"]) {
      if (value < 1000) return `${Number(value.toPrecision(3))} ${unit}`;
      value /= 1000;
    }
    return `${show(value)} TB`;
  }

  // ------------------------------------------------------------------------------------------------------- drawing

  function fit(box, { width, height }, [left, right, top, bottom], equal) {
    const span = box.high.map((high, i) => high - box.low[i]);
    let across = (width - left - right) / span[0], up = (height - top - bottom) / span[1];
    if (equal) across = up = Math.min(across, up);
    const x0 = left + (width - left - right - across * span[0]) / 2;
    const y0 = height - bottom - (height - top - bottom - up * span[1]) / 2;
    return {
      across, up, x0, y0, low: box.low,
      x: (steps) => x0 + steps * across * span[0] / box.levels,
      y: (steps) => y0 - steps * up * span[1] / box.levels,
    };
  }

  function chosen() {
    return hovered >= 0 ? hovered : pinned;
  }

  function drawGraph() {
    const { pen, width, height, spots } = views.graph, to = views.graph.fit, size = views.graph.radius;
    pen.clearRect(0, 0, width, height);
    const node = chosen(), mine = new Set(node < 0 ? [] : edgesOf[node]);
    const wanted = shades[byId("links").value], lit = Array.from({ length: LEVELS + 1 }, () => []);
    for (let e = 0; e < links; e++) {
      const value = wanted.values[frame * links + e];
      lit[value > 0 ? 1 + Math.floor(level(wanted, value) * (LEVELS - 1e-9)) : 0].push(e);
    }
    const thick = Math.min(Math.max(40 / Math.sqrt(links + 1), 0.6), 2.2);
    lit.forEach((some, i) => {
      const strength = i / LEVELS;
      pen.strokeStyle = i ? ink.lit : ink.line;
      pen.globalAlpha = i ? 0.25 + 0.75 * strength : 0.9;
      pen.lineWidth = thick * (i ? 0.8 + 1.8 * strength : 0.7);
      traceLinks(pen, some, spots);
    });
    pen.globalAlpha = 1;
    if (mine.size) {
      pen.strokeStyle = ink.accent;
      pen.lineWidth = thick + 1;
      traceLinks(pen, [...mine], spots);
    }
    drawNodes(pen, spots, size, node);
  }

  function traceLinks(pen, some, spots) {
    pen.beginPath();
    for (const e of some) {
      pen.moveTo(...spots[data.edgeA[e]]);
      pen.lineTo(...spots[data.edgeB[e]]);
    }
    pen.stroke();
  }

  // Names of at most `longest` letters, abbreviated in the middle, as in the figures; equal ones get their number.
  function shortenNames(longest) {
    const cut = Array.from({ length: devices }, (_, i) => {
      const head = Math.max(1, Math.round(0.625 * longest)), name = content.names[i];
      return name.length <= longest ? name : `${name.slice(0, head)}…${name.slice(head + 1 - longest)}`;
    });
    return cut.map((name, i) => (cut.indexOf(name) === cut.lastIndexOf(name) ? name : `${name} (${data.device[i]})`));
  }

  // Places of names without overlap, below or above their marks and on the canvas; null if a name has none.
  function placeNames(pen, spots, size, names) {
    const { clientWidth: width, clientHeight: height } = pen.canvas, placed = [];
    for (let i = 0; i < devices; i++) {
      const half = pen.measureText(names[i]).width / 2 + 2, [spot, middle] = spots[i];
      const x = Math.max(half, Math.min(spot, width - half));
      const y = [middle + size + 2, middle - size - 14].find((top) => top > 0 && top + 12 < height
        && placed.every((other) => Math.abs(other.x - x) > other.half + half || Math.abs(other.y - top) > 13));
      if (y === undefined || 2 * half > width) return null;
      placed.push({ name: names[i], x, y, half });
    }
    return placed;
  }

  // Names of devices next to their marks, as long as there is room, or else their numbers.
  function writeNames(pen, spots, size) {
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "top";
    let placed = null;
    for (const longest of [40, 30, 24, 20, 16, 12, 9, 6]) placed ??= placeNames(pen, spots, size, shortenNames(longest));
    placed ??= spots.slice(0, devices).map(([x, y], i) => ({ name: String(data.device[i]), x, y: y - 5 }));
    for (const { name, x, y } of placed) {
      pen.lineWidth = 3;
      pen.strokeStyle = ink.paper;
      pen.strokeText(name, x, y);
      pen.fillStyle = ink.text;
      pen.fillText(name, x, y);
    }
    pen.textBaseline = "middle";
  }

  function drawNodes(pen, spots, size, node) {
    const wanted = shades[byId("devices").value];
    pen.lineWidth = size > 4 ? 1 : 0.5;
    pen.font = `${Math.round(Math.min(size * 1.1, 12))}px system-ui, sans-serif`;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    for (let i = 0; i < nodes; i++) {
      const [x, y] = spots[i], value = i < devices ? wanted.values[frame * devices + i] : NaN;
      const known = Number.isFinite(value), shade = known ? color(level(wanted, value)) : null;
      pen.fillStyle = known ? `rgb(${shade})` : ink.muted;
      pen.strokeStyle = ink.text;
      pen.beginPath();
      if (i < devices) pen.arc(x, y, size, 0, 2 * Math.PI);
      else pen.rect(x - size * 1.2, y - size * 1.2, size * 2.4, size * 2.4);
      pen.fill();
      pen.stroke();
      if (nodes <= NUMBERED && size >= 7 && !(content.names && i < devices)) {
        pen.fillStyle = !known ? ink.paper : luminance(shade) > 0.179 ? "#000" : "#fff"; // the one with more contrast
        pen.fillText(i < devices ? data.device[i] : "S", x, y + 0.5);
      }
    }
    if (nodes <= NUMBERED && size >= 7 && content.names) writeNames(pen, spots, size);
    if (node >= 0) {
      pen.strokeStyle = ink.accent;
      pen.lineWidth = 3;
      pen.beginPath();
      pen.arc(...spots[node], size + 4, 0, 2 * Math.PI);
      pen.stroke();
    }
  }

  function drawPoints() { // into a canvas, once, because points do not move
    const { canvas, width, height } = views.cloud, to = views.cloud.fit;
    const still = document.createElement("canvas");
    still.width = canvas.width;
    still.height = canvas.height;
    const pen = still.getContext("2d");
    pen.scale(canvas.width / width, canvas.height / height);
    drawAxes(pen, width, height, to);
    pen.globalAlpha = dark.matches ? 0.75 : 0.5;
    for (let i = 0; i < data.pointClass.length; i++) {
      const kind = data.pointClass[i];
      pen.fillStyle = kind < 0 ? ink.muted : content.classes[kind % content.classes.length];
      pen.fillRect(to.x(data.points[2 * i]) - 1.25, to.y(data.points[2 * i + 1]) - 1.25, 2.5, 2.5);
    }
    views.cloud.still = still;
  }

  function drawAxes(pen, width, height, to) {
    pen.fillStyle = ink.muted;
    pen.strokeStyle = ink.line;
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "top";
    pen.textAlign = "center";
    const [across, up] = content.cloud.names, bottom = height - 30, left = 40;
    for (const value of ticks(content.cloud.low[0], content.cloud.high[0], width / 90)) {
      const x = to.x0 + (value - to.low[0]) * to.across;
      pen.fillRect(x, bottom, 1, 4);
      pen.fillText(show(value), x, bottom + 5);
    }
    pen.fillText(across, (left + width) / 2, height - 12);
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    for (const value of ticks(content.cloud.low[1], content.cloud.high[1], height / 90)) {
      const y = to.y0 - (value - to.low[1]) * to.up;
      pen.fillRect(left - 4, y, 4, 1);
      pen.fillText(show(value), left - 6, y);
    }
    pen.save();
    pen.translate(7, bottom / 2);
    pen.rotate(-Math.PI / 2);
    pen.textAlign = "center";
    pen.fillText(up, 0, 0);
    pen.restore();
  }

  function ticks(low, high, most) {
    const rough = (high - low) / Math.max(most, 2), power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough), found = [];
    for (let i = Math.ceil(low / step); i * step <= high; i++) found.push(Number((i * step).toPrecision(12)));
    return found;
  }

  // Position of centroid j of device i, interpolated to the next frame while playing; null if it is absent.
  function place(t, i, j, part = 0) {
    const here = 2 * ((t * devices + i) * k + j), all = data.centroids, none = content.cloud.absent;
    if (all[here] === none && all[here + 1] === none) return null;
    let x = all[here], y = all[here + 1];
    const next = here + 2 * devices * k;
    if (part && next < all.length && all[next] !== none && content.frames[t].stage === content.frames[t + 1].stage) {
      x += part * (all[next] - x);
      y += part * (all[next + 1] - y);
    }
    return [views.cloud.fit.x(x), views.cloud.fit.y(y)];
  }

  function drawCloud() {
    const { pen, width, height, spots } = views.cloud, node = chosen();
    pen.clearRect(0, 0, width, height);
    pen.drawImage(views.cloud.still, 0, 0, width, height);
    const crosses = devices * k <= CROSSES, size = crosses ? 4 : 1;
    pen.strokeStyle = pen.fillStyle = ink.text;
    pen.globalAlpha = (node >= 0 && node < devices ? 0.25 : 1) * (crosses ? 0.8 : Math.max(0.25, Math.min(0.8, 6000 / (devices * k))));
    pen.lineWidth = 1.4;
    spots.length = 0;
    pen.beginPath();
    for (let i = 0; i < devices; i++) {
      for (let j = 0; j < k; j++) {
        const at = place(frame, i, j, blend);
        if (!at) continue;
        spots.push([...at, i]);
        if (crosses) cross(pen, at, size);
        else pen.rect(at[0] - size, at[1] - size, 2 * size, 2 * size);
      }
    }
    if (crosses) pen.stroke();
    else pen.fill();
    pen.globalAlpha = 1;
    if (node >= 0 && node < devices) drawOwn(pen, node);
  }

  function cross(pen, [x, y], size) {
    pen.moveTo(x - size, y - size);
    pen.lineTo(x + size, y + size);
    pen.moveTo(x - size, y + size);
    pen.lineTo(x + size, y - size);
  }

  function drawOwn(pen, node) { // the points, centroids and paths of one device
    const to = views.cloud.fit;
    pen.fillStyle = pen.strokeStyle = ink.accent;
    for (let i = 0; i < data.pointDevice.length; i++) {
      if (data.pointDevice[i] !== node) continue;
      pen.fillRect(to.x(data.points[2 * i]) - 2, to.y(data.points[2 * i + 1]) - 2, 4, 4);
    }
    pen.lineWidth = 1;
    pen.beginPath();
    for (let j = 0; j < k; j++) {
      for (let t = 1; t <= frame; t++) {
        const before = place(t - 1, node, j), after = place(t, node, j);
        if (!before || !after || content.frames[t].stage !== content.frames[t - 1].stage) continue;
        pen.moveTo(...before);
        pen.lineTo(...after);
      }
    }
    pen.stroke();
    for (const [style, wide] of [[ink.paper, 5], [ink.accent, 2.5]]) {
      pen.strokeStyle = style;
      pen.lineWidth = wide;
      pen.beginPath();
      for (let j = 0; j < k; j++) {
        const at = place(frame, node, j, blend);
        if (at) cross(pen, at, 6);
      }
      pen.stroke();
    }
  }

  function drawStrip() { // stages as bands, and the curve of the chosen metric
    const { pen, width, height } = views.strip, edge = 8;
    const x = (i) => edge + (width - 2 * edge) * (frames > 1 ? i / (frames - 1) : 0);
    const values = curve.values, scale = curve.range;
    pen.clearRect(0, 0, width, height);
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "top";
    let start = 0, band = 0, free = 0;
    for (let i = 1; i <= frames; i++) {
      if (i < frames && content.frames[i].stage === content.frames[start].stage) continue;
      const from = start ? x(start - 0.5) : 0, to = i < frames ? x(i - 0.5) : width;
      pen.fillStyle = band++ % 2 ? ink.card : ink.pale;
      pen.fillRect(from, 0, to - from, height);
      pen.fillStyle = ink.muted;
      if (pen.measureText(content.frames[start].stage).width < to - from - 4 && from >= free) pen.fillText(content.frames[start].stage, from + 4, 3);
      start = i;
    }
    pen.strokeStyle = ink.lit;
    pen.lineWidth = 1.6;
    pen.beginPath();
    values.forEach((value, i) => {
      const y = height - 4 - (height - 22) * level(scale, value);
      if (!Number.isFinite(value)) return;
      if (i && Number.isFinite(values[i - 1])) pen.lineTo(x(i), y);
      else pen.moveTo(x(i) - 0.5, y), pen.lineTo(x(i), y);
    });
    pen.stroke();
    pen.fillStyle = ink.accent;
    pen.fillRect(x(frame + blend) - 1, 0, 2, height);
  }

  // ------------------------------------------------------------------------------------------------------ the page

  function measure() { // current sizes and colors
    if (!views.cloud.canvas.clientWidth) return; // hidden
    const style = getComputedStyle(document.documentElement);
    ink = Object.fromEntries(["text", "muted", "line", "pale", "paper", "card", "accent", "lit"]
      .map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
    for (const one of Object.values(views)) {
      const { canvas, pen } = one, sharp = devicePixelRatio || 1;
      one.width = canvas.clientWidth;
      one.height = canvas.clientHeight;
      canvas.width = Math.round(one.width * sharp);
      canvas.height = Math.round(one.height * sharp);
      pen.setTransform(sharp, 0, 0, sharp, 0, 0);
    }
    const { graph, cloud } = views;
    graph.radius = Math.min(Math.max(0.22 * Math.min(graph.width, graph.height) / Math.sqrt(nodes), 1.8), 13);
    const pad = graph.radius + 6;
    graph.fit = fit(content.graph, graph, [pad, pad, pad, pad], true);
    graph.spots = Array.from({ length: nodes }, (_, i) => [graph.fit.x(data.places[2 * i]), graph.fit.y(data.places[2 * i + 1])]);
    const sides = content.cloud.high.map((high, i) => high - content.cloud.low[i]);
    const square = !content.cloud.line && Math.max(...sides) <= ELONGATED * Math.min(...sides);
    cloud.fit = fit(content.cloud, cloud, [44, 6, 6, 34], square);
    drawPoints();
    explain();
    draw();
  }

  function draw() {
    drawGraph();
    drawCloud();
    drawStrip();
  }

  function explain() { // keys of colors and marks
    const key = (one, ramp) => {
      const bar = document.createElement("span");
      bar.className = `ramp ${ramp}`;
      const text = (value) => (one.whole ? showBytes(value) : show(value));
      const words = [`${one.title}: `, text(one.low), bar, text(one.high) + (one.log ? ", logarithmic" : "")];
      const line = document.createElement("div");
      line.append(...words.map((word) => (typeof word === "string" ? Object.assign(document.createElement("span"), { textContent: word }) : word)));
      return line;
    };
    byId("graph-key").replaceChildren(key(shades[byId("devices").value], "viridis"), key(shades[byId("links").value], "lit"));
    byId("strip-key").textContent = `line: ${curve.title}${curve.range.log ? ", logarithmic" : ""}; bands: stages`;
    byId("cloud-key").textContent = `${devices * k <= CROSSES ? "crosses" : "squares"}: the devices' centroids; dots: points`
      + (content.cloud.colored ? `, colored by ${content.cloud.colored}` : "");
  }

  function describeFrame() { // metrics of the frame as text
    const one = content.frames[frame], excess = one.ratio_mean === null ? null : 100 * (one.ratio_mean - 1);
    const parts = [`${one.stage}, round ${one.round}`];
    if (excess !== null) parts.push(`${show(excess)} % above central k-means`);
    if (one.test_ratio_common !== null) parts.push(`test cost ${show(one.test_ratio_common)} times that of a common clustering`);
    if (one.gtv !== null) parts.push(`total variation ${show(one.gtv)}`);
    parts.push(`${showBytes(one.bytes)} of plain bytes sent so far`);
    if (one.converged !== null) parts.push(`${one.converged} of ${content.all} converged`);
    byId("now").textContent = parts.join(" · ");
    slider.setAttribute("aria-valuetext", `${one.stage}, round ${one.round}, frame ${frame + 1} of ${frames}`);
  }

  function go(to) {
    frame = Math.min(Math.max(to, 0), frames - 1);
    blend = 0;
    slider.value = frame;
    describeFrame();
    draw();
    showTip();
  }

  function run(on) {
    if (on && frame === frames - 1) go(0);
    playing = on && frames > 1;
    began = 0;
    play.textContent = playing ? "❚❚" : "▶";
    play.setAttribute("aria-label", playing ? "Pause" : "Play");
    byId("now").setAttribute("aria-live", playing ? "off" : "polite");
    if (playing) requestAnimationFrame(tick);
    else if (blend) go(frame);
  }

  function tick(now) {
    if (!playing) return;
    const pause = reducedMotion.matches ? 700 : Math.min(Math.max(12000 / frames, 180), 600);
    began ||= now;
    const passed = (now - began) / pause;
    if (passed >= 1) {
      began = now;
      go(frame + 1);
      if (frame === frames - 1) return run(false);
    } else if (!reducedMotion.matches && devices * k <= 20000) { // centroids move smoothly
      blend = passed;
      drawCloud();
      drawStrip();
    }
    requestAnimationFrame(tick);
  }

  // ----------------------------------------------------------------------------------------------------- a device

  function showTip() { // values of the chosen device
    const node = chosen();
    tip.hidden = node < 0;
    if (node < 0) return;
    let sent = 0;
    for (const e of edgesOf[node]) for (let t = 0; t <= frame; t++) sent += data.sent[t * links + e];
    const at = frame * devices + node, own = node < devices;
    const rows = [["neighbors", data.degree[node]]];
    if (own) {
      rows.unshift(["points", data.size[node]]);
      rows.push(["cost", data.cost[at]], ["cost per point", perPoint[at]], ["total variation", data.disagreement[at]]);
    }
    rows.push([content.whole ? "plain bytes so far" : "plain bytes so far, links shown", sent], ["plain bytes in total", data.total[node]]);
    const list = document.createElement("dl");
    for (const [name, value] of rows) {
      list.append(Object.assign(document.createElement("dt"), { textContent: name }),
        Object.assign(document.createElement("dd"), { textContent: show(Number.isInteger(value) ? value : Math.fround(value)) }));
    }
    const title = Object.assign(document.createElement("strong"), { textContent: own ? `Device ${data.device[node]}${content.names ? `: ${content.names[node]}` : ""}` : "Server" });
    tip.replaceChildren(title, list);
    moveTip(node);
  }

  function moveTip(node) { // next to the device, on the side with enough room
    const stage = tip.parentElement.getBoundingClientRect(), canvas = views.graph.canvas.getBoundingClientRect();
    const [x, y] = views.graph.spots[node], away = views.graph.radius + 12;
    const left = canvas.left - stage.left + x, top = canvas.top - stage.top + y;
    const room = stage.width - tip.offsetWidth;
    const beside = left + away <= room ? left + away : left - away - tip.offsetWidth;
    tip.style.left = `${Math.min(Math.max(beside, 0), Math.max(room, 0))}px`;
    const above = beside < 0 ? top + away : top - tip.offsetHeight / 2;
    tip.style.top = `${Math.min(Math.max(above, 0), Math.max(stage.height - tip.offsetHeight, 0))}px`;
  }

  function find({ canvas, spots }, event) { // device under the pointer, -1 if none
    const box = canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    const reach = event.pointerType === "touch" ? 26 : 12;
    let best = -1, least = (canvas === views.graph.canvas ? views.graph.radius + reach : reach) ** 2;
    spots.forEach(([left, top, owner], i) => {
      const distance = (left - x) ** 2 + (top - y) ** 2;
      if (distance < least) [best, least] = [owner ?? i, distance];
    });
    return best;
  }

  function point(node) {
    if (node === hovered) return;
    hovered = node;
    drawGraph();
    drawCloud();
    showTip();
  }

  function pin(node) {
    pinned = node;
    hovered = -1;
    deviceInput.value = node >= 0 && node < devices ? data.device[node] : "";
    drawGraph();
    drawCloud();
    showTip();
  }

  for (const one of [views.graph, views.cloud]) {
    one.canvas.addEventListener("pointermove", (event) => event.pointerType !== "touch" && point(find(one, event)));
    one.canvas.addEventListener("pointerleave", () => point(-1));
    one.canvas.addEventListener("click", (event) => {
      const node = find(one, event);
      pin(node === pinned ? -1 : node);
    });
  }
  deviceInput.addEventListener("input", () => {
    const node = deviceInput.value === "" ? -1 : data.device.subarray(0, devices).indexOf(Number(deviceInput.value));
    deviceInput.setCustomValidity(deviceInput.value !== "" && node < 0 ? `device ${deviceInput.value} is not among those shown` : "");
    deviceInput.reportValidity();
    pinned = node;
    hovered = -1;
    draw();
    showTip();
  });
  slider.addEventListener("input", () => {
    run(false);
    go(Number(slider.value));
  });
  play.addEventListener("click", () => run(!playing));
  root.addEventListener("keydown", (event) => {
    const typing = event.target.matches("select, input[type=number], summary");
    if (typing || event.ctrlKey || event.altKey || event.metaKey) return;
    const moves = { ArrowRight: frame + 1, ArrowLeft: frame - 1, ArrowUp: frame + 1, ArrowDown: frame - 1, Home: 0, End: frames - 1 };
    if (event.key === " ") run(!playing);
    else if (event.key === "Escape") pin(-1);
    else if (event.key in moves) {
      run(false);
      go(moves[event.key]);
    } else return;
    event.preventDefault();
  });
  root.addEventListener("keyup", (event) => event.key === " " && event.target === play && event.preventDefault());
  for (const name of ["devices", "links"]) byId(name).addEventListener("change", () => { explain(); draw(); });
  dark.addEventListener("change", measure);
  new ResizeObserver(measure).observe(root);
  measure();
  go(frames - 1);
  root.classList.add("ready");
})();
