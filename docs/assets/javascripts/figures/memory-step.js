/* A rank's memory over two steps, as tools/sitelab/figures/memory_step.py traces it. */
(function () {
  "use strict";

  const { element, play, player, size, answer } = window.figures;
  const KINDS = ["weight", "gradient", "optimizer", "activation"];
  const STACKED = ["weight", "optimizer", "gradient", "activation"];
  const HEADROOM = 1.08;

  const whole = ({ bytes }) => KINDS.reduce((sum, kind) => sum + bytes[kind], 0);

  /* The spans of both steps, each with the memory before it, at its ends and after it. */
  function trace(parts, spans, keeps) {
    const traced = [];
    let [activations, moments, gradient] = [0, 0, keeps ? parts.gradient : 0];
    const take = (time, extra) => ({ time, bytes: { weight: parts.weight, gradient,
      optimizer: parts.master + moments, activation: activations + extra } });
    for (const begin of [0, spans.at(-1)[3]]) {
      for (const [kind, microBatch, from, to] of spans) {
        const [start, end] = [begin + from, begin + to];
        const again = kind === "B" ? parts.recomputed : 0;
        const points = [take(start, 0)];
        if (kind === "U") moments = parts.moments;
        points.push(take(start, again));
        activations += { F: parts.stored, B: -parts.stored, U: 0 }[kind];
        if (kind === "B") gradient = parts.gradient;
        points.push(take(end, again), take(end, 0));
        traced.push({ kind, microBatch, start, end, points });
      }
      gradient = keeps ? parts.gradient : 0;
    }
    return traced;
  }

  const findPeak = (points) => points.reduce((most, point) =>
    (Math.round(whole(point)) > Math.round(whole(most)) ? point : most));

  function chooseAxis(most) {
    const power = 10 ** Math.floor(Math.log10(most / 4));
    const step = power * [1, 2, 5, 10].find((factor) => most * HEADROOM / factor / power <= 5);
    return Array.from({ length: Math.ceil(most * HEADROOM / step) + 1 }, (_, number) => step * number);
  }

  function drawArea(points, kind, end, top) {
    const below = STACKED.slice(0, STACKED.indexOf(kind));
    const lows = points.map(({ time, bytes }) =>
      [time, below.reduce((sum, name) => sum + bytes[name], 0)]);
    const highs = points.map(({ bytes }, index) => [lows[index][0], lows[index][1] + bytes[kind]]);
    return [...highs, ...lows.reverse()].map(([time, bytes]) =>
      `${(100 * time / end).toFixed(3)},${(100 - 100 * bytes / top).toFixed(3)}`).join(" ");
  }

  function drawSvg(name, attributes) {
    const created = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) created.setAttribute(key, value);
    return created;
  }

  function drawPlot(plot, traced, peaks, words) {
    const ticks = chooseAxis(Math.max(...peaks));
    const [top, { end }] = [ticks.at(-1), traced.at(-1)];
    const height = (bytes) => (100 - 100 * bytes / top).toFixed(3);
    const every = traced.flatMap(({ points }) => points);
    plot.querySelector("svg").replaceChildren(
      ...ticks.map((tick) => drawSvg("path", { class: "play-grid", d: `M0 ${height(tick)}h100` })),
      ...STACKED.map((kind) => drawSvg("polygon", { class: "step-area", "data-kind": kind,
        points: drawArea(every, kind, end, top) })),
      drawSvg("path", { class: "play-grid", d: "M50 0v100" }),
      ...peaks.map((peak, step) =>
        drawSvg("path", { class: "step-peak", d: `M${50 * step} ${height(peak)}h50` })),
      drawSvg("path", { class: "play-marker" }));
    const write = (className, textContent, left, bytes) => {
      const text = element("span", { className, textContent });
      Object.assign(text.style, { left, top: `${height(bytes)}%` });
      return text;
    };
    plot.querySelectorAll("span").forEach((text) => text.remove());
    plot.append(
      ...ticks.map((tick) => write("play-y", size(tick).replace(/\.0+ /, " "), "", tick)),
      ...peaks.map((peak, step) =>
        write("step-label", `${words.peak} ${size(peak)}`, `${50 * step}%`, peak)));
  }

  function draw(figure, at, data) {
    const parts = data.bytes[`${at.model}/${at.recompute}`];
    const stages = data.stages[at.model];
    const spans = data.spans[`${stages}/${at.microBatches}/${data.backward[at.recompute]}`];
    const traced = trace(parts, spans, at.keeps);
    const peaks = [0, 1].map((step) => whole(findPeak(
      traced.slice(step * spans.length, (step + 1) * spans.length).flatMap(({ points }) => points))));
    drawPlot(figure.querySelector(".step-plot"), traced, peaks, data.words);
    const { end } = traced.at(-1);
    figure.querySelector(".step-track").replaceChildren(...traced.map((span) => {
      const box = element("span", { className: `play-box play-${span.kind.toLowerCase()}` },
        element("i", { textContent: span.kind === "U" ? "" : span.microBatch }));
      box.style.left = `${100 * span.start / end}%`;
      box.style.width = `${100 * (span.end - span.start) / end}%`;
      return box;
    }));
    const live = Math.min(at.microBatches, stages);
    answer(figure, "first", size(peaks[0]));
    answer(figure, "second", size(peaks[1]));
    answer(figure, "account", size(parts.weight + parts.gradient + parts.master + parts.moments +
      live * parts.stored + parts.recomputed));
    return traced;
  }

  function show(figure, traced, moment, words) {
    const span = traced[moment];
    const peak = findPeak(span.points);
    const place = (100 * peak.time / traced.at(-1).end).toFixed(3);
    figure.querySelector(".play-marker").setAttribute("d", `M${place} 0v100`);
    let text = words[`during-${span.kind}`].replace("{number}", span.microBatch)
      .replace("{whole}", size(whole(peak)));
    for (const kind of KINDS) {
      figure.querySelector(`[data-sum="${kind}"]`).textContent = size(peak.bytes[kind]);
      text = text.replace(`{${kind}}`, size(peak.bytes[kind]));
    }
    return text;
  }

  let traced = null;
  const figure = document.querySelector('figure[data-figure="memory-step"]');
  const { words } = JSON.parse(figure.querySelector("script").textContent);
  const restart = player(figure, words, (moment) => show(figure, traced, moment, words));
  play("memory-step", (_, at, data) => {
    traced = draw(figure, at, data);
    const peak = findPeak(traced.flatMap(({ points }) => points));
    restart(traced.length - 1, traced.findIndex(({ points }) => points.includes(peak)));
  }, undefined, true);
})();
