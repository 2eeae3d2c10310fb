/* Plays shardlab's lists of actions against a clock, as shardlab.proofs.schedules.timeline does, and
 * draws when each stage computes, with a moment in it to play. */
(function () {
  "use strict";

  const { element, markMoment, play, player, percent, answer } = window.figures;

  function read(text) {
    const [, kind, microBatch, letter] = /^([FBW])(\d+)([a-z]?)$/.exec(text);
    return { kind, microBatch: Number(microBatch), chunk: letter ? letter.charCodeAt(0) - 97 : 0 };
  }

  const key = (stage, { kind, microBatch, chunk }) => `${stage} ${kind}${microBatch} ${chunk}`;

  /* When each compute starts and ends: once its stage is free and its input is there. */
  function timeline(orders, backward) {
    const stages = orders.length;
    const chunks = 1 + Math.max(...orders.flat().map(({ chunk }) => chunk));
    const apart = orders.flat().some(({ kind }) => kind === "W");
    const ended = new Map();
    const spans = orders.map(() => []);

    function ready(stage, action) {
      const before = { B: "F", W: "B" }[action.kind];
      if (before && !ended.has(key(stage, { ...action, kind: before }))) return null;
      if (action.kind === "W") return 0;
      const piece = action.chunk * stages + stage + (action.kind === "F" ? -1 : 1);
      if (piece < 0 || piece >= stages * chunks) return 0;
      const source = { ...action, chunk: Math.floor(piece / stages) };
      return ended.get(key(piece % stages, source)) ?? null;
    }

    function advance(stage) {
      const [order, done] = [orders[stage], spans[stage]];
      const before = done.length;
      while (done.length < order.length) {
        const action = order[done.length];
        const from = ready(stage, action);
        if (from === null) break;
        const start = Math.max(from, done.length ? done.at(-1).end : 0);
        const end = start + (action.kind === "F" ? 1 : apart ? backward / 2 : backward);
        done.push({ ...action, start, end });
        ended.set(key(stage, action), end);
      }
      return done.length > before;
    }

    for (let moved = true; moved;) {
      moved = orders.map((_, stage) => advance(stage)).includes(true);
    }
    return { spans, chunks };
  }

  function peak(order) {
    const last = order.some(({ kind }) => kind === "W") ? "W" : "B";
    let [live, peak] = [0, 0];
    for (const { kind } of order) peak = Math.max(peak, live += (kind === "F") - (kind === last));
    return peak;
  }

  function box(span, end) {
    const created = element("span", { className: `play-box play-${span.kind.toLowerCase()}` },
      element("i", { textContent: span.microBatch }));
    created.dataset.chunk = span.chunk;
    created.dataset.start = span.start;
    created.style.left = `${100 * span.start / end}%`;
    created.style.width = `${100 * (span.end - span.start) / end}%`;
    return created;
  }

  function draw(figure, at, data) {
    const chosen = data.schedules[`${at.kind}/${at.stages}/${at.microBatches}`];
    if (!chosen) return [["microBatches stages kind", data.words.none]];
    const orders = chosen.stages.map((stage) => stage.split(" ").map(read));
    const { spans, chunks } = timeline(orders, at.backward);
    const all = spans.flat();
    const end = Math.max(...all.map((span) => span.end));
    const busy = all.reduce((sum, span) => sum + span.end - span.start, 0);
    const tracks = figure.querySelector(".play-tracks");
    tracks.style.setProperty("--units", end);
    const digits = String(at.microBatches - 1).length;
    tracks.style.setProperty("--digits", digits);
    tracks.dataset.digits = digits;
    tracks.replaceChildren(...spans.flatMap((stage, number) => [
      element("span", { className: "play-stage", textContent: number }),
      element("span", { className: "play-track" }, ...stage.map((span) => box(span, end))),
    ]));
    answer(figure, "bubble", percent(1 - busy / (spans.length * end)));
    answer(figure, "live", peak(orders[0]) / chunks);
    answer(figure, "sends", chosen.sends);
    const times = [...new Set([0, ...all.flatMap((span) => [span.start, span.end])])]
      .sort((a, b) => a - b);
    shown = { spans, chunks, end, times };
    restart(times.length - 1, times.length - 1);
    return [];
  }

  /* The micro-batches whose activations a stage holds; of v chunks each is a part. */
  function live(spans, chunks, now) {
    const last = spans.some(({ kind }) => kind === "W") ? "W" : "B";
    const begun = spans.filter(({ kind, start }) => kind === "F" && start <= now);
    return (begun.length - spans.filter(({ kind, end }) => kind === last && end <= now).length) / chunks;
  }

  function show({ spans, chunks, end, times }, moment) {
    const now = times[moment];
    markMoment(figure.querySelector(".play-tracks"), now, end);
    if (now === end) return words.still;
    const busy = spans.filter((stage) => stage.some((span) => span.start <= now && now < span.end));
    return words.moment.replace("{now}", now / chunks).replace("{end}", end / chunks).replace("{busy}", busy.length)
      .replace("{stages}", spans.length)
      .replace("{live}", spans.map((stage) => live(stage, chunks, now)).join(", "));
  }

  let shown = null;
  const figure = document.querySelector('figure[data-figure="schedule"]');
  const { words } = JSON.parse(figure.querySelector("script").textContent);
  const restart = player(figure, words, (moment) => show(shown, moment));
  play("schedule", draw, undefined, true);
})();
