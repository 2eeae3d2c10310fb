/* One step of FSDP against a clock, as shardlab.proofs.schedules.fsdp_step simulates it, with a
 * moment in it to play. */
(function () {
  "use strict";

  const { element, markMoment, play, player, percent, size, answer } = window.figures;
  const LENGTHS = { forward: 2, backward: 4 };

  /* A step of which the limiter begins with the units in `queued`; what it leaves there is `frees`. */
  function run(at, [guard, limit], queued) {
    const wire = [];
    const computing = [];
    const memory = [];
    const frees = queued.map((unit) => ({ unit, end: 0 }));
    const whole = new Map();
    const asked = new Set();
    const begun = new Map();
    let [cpu, copied, onWire, busy, reduced] = [0, 0, 0, 0, 0];

    function communicate(kind, unit, ready) {
      const start = Math.max(ready, onWire);
      onWire = start + at.collective;
      wire.push({ kind, unit, start, end: onWire });
      return onWire;
    }

    function unshard(unit) {
      if (asked.has(unit)) return;
      asked.add(unit);
      if (guard === "limiter" && frees.length >= limit) cpu = Math.max(cpu, frees.shift().end);
      if (whole.has(unit)) return;
      const start = { copies: copied, computing: busy }[guard] ?? cpu;
      whole.set(unit, { start, end: communicate("gather", unit, start) });
    }

    function compute(kind, unit) {
      const start = Math.max(busy, whole.get(unit).end);
      busy = start + LENGTHS[kind];
      computing.push({ kind, unit, start, end: busy });
      return start;
    }

    function free(unit) {
      const { end } = computing.at(-1);
      memory.push({ kind: "parameters", unit, start: whole.get(unit).start, end });
      whole.delete(unit);
      if (guard === "limiter") frees.push({ unit, end });
    }

    function finish(unit, start) {
      free(unit);
      if (at.backward_prefetch === "post" && unit > 1) unshard(unit - 1);
      if (["copies", "computing"].includes(guard)) busy = Math.max(busy, reduced);
      reduced = communicate("reduce", unit, computing.at(-1).end);
      memory.push({ kind: "gradient", unit, start, end: reduced });
    }

    for (let unit = 1; unit <= at.units; unit += 1) {
      const before = computing.length ? computing.at(-1).start : 0;
      unshard(unit);
      copied = before;
      if (at.forward_prefetch && unit < at.units) unshard(unit + 1);
      const start = compute("forward", unit);
      if (unit === at.units) copied = start;
      asked.delete(unit);
      if (at.reshards) free(unit);
    }
    const late = at.forward_prefetch && ["limiter", "nothing"].includes(guard);
    for (let unit = at.units; unit >= 1; unit -= 1) {
      unshard(unit);
      copied = Math.max(busy, whole.get(unit).end);
      if (at.backward_prefetch === "pre" && unit > 1) unshard(unit - 1);
      begun.set(unit, compute("backward", unit));
      for (const [done, start] of [...begun]) {
        if (late && done <= unit && unit > 1) continue;
        begun.delete(done);
        finish(done, start);
      }
    }
    return { wire, computing, memory, frees: frees.map(({ unit }) => unit) };
  }

  /* A step like all that follow: the limiter's queue begins as it ends. */
  function simulate(at, guard) {
    for (let queued = []; ;) {
      const step = run(at, guard, queued);
      if (String(step.frees) === String(queued)) return step;
      queued = step.frees;
    }
  }

  const during = (spans, now) => spans.filter(({ start, end }) => start <= now && now < end);

  function peak(spans) {
    return Math.max(...spans.map(({ start }) => during(spans, start).length));
  }

  /* In as few lanes as there are spans at the fullest moment. */
  function lanes(spans) {
    const packed = [];
    for (const span of [...spans].sort((a, b) => a.start - b.start || a.unit - b.unit)) {
      const lane = packed.find((spansOfLane) => spansOfLane.at(-1).end <= span.start);
      if (lane) lane.push(span); else packed.push([span]);
    }
    return packed;
  }

  function track(spans, end, name = "") {
    const boxes = spans.map((span) => {
      const box = element("span", { className: `play-box play-${span.kind}` },
        element("i", { textContent: span.unit }));
      box.dataset.start = span.start;
      box.style.left = `${100 * span.start / end}%`;
      box.style.width = `${100 * (span.end - span.start) / end}%`;
      return box;
    });
    return element("span", { className: `play-track ${name}` }, ...boxes);
  }

  /* Tracks with one label. */
  function labelled(label, tracks) {
    const stage = element("span", { className: "play-stage", textContent: label });
    stage.style.setProperty("--lanes", tracks.length);
    return [stage, ...tracks];
  }

  /* What a moment shows: later boxes pale, a line, and a sentence. */
  function show(figure, { wire, computing, memory, end }, now, words) {
    markMoment(figure.querySelector(".play-tracks"), now, end);
    const say = (key, spans, isNamed) => {
      const list = during(spans, now).sort((a, b) => a.unit - b.unit)
        .map(({ kind, unit }) => (isNamed ? `${words[`key-${kind}`]} ${unit}` : unit)).join(", ");
      return list ? words[`now-${key}`].replace("{list}", list) : words[`no-${key}`];
    };
    const whole = (kind) => say(kind, memory.filter((span) => span.kind === kind));
    return now === end ? words.still : words.moment.replace("{now}", now)
      .replace("{wire}", say("wire", wire, true)).replace("{computing}", say("computing", computing, true))
      .replace("{parameters}", whole("parameters")).replace("{gradient}", whole("gradient"));
  }

  function draw(figure, at, data) {
    const step = simulate(at, data.guards[at.guard]);
    const { wire, computing, memory } = step;
    const end = step.end = Math.max(wire.at(-1).end, computing.at(-1).end);
    const exposed = end - computing.reduce((sum, span) => sum + span.end - span.start, 0);
    const { words } = data;
    const tracks = figure.querySelector(".play-tracks");
    tracks.style.setProperty("--units", end);
    tracks.replaceChildren(...labelled(words.wire, [track(wire, end)]),
      ...labelled(words.computing, [track(computing, end)]),
      ...["parameters", "gradient"].flatMap((kind) => labelled(words[kind],
        lanes(memory.filter((span) => span.kind === kind)).map((lane) => track(lane, end, "play-lane")))));
    tracks.toggleAttribute("data-many", tracks.querySelectorAll(".play-lane").length > 8);
    const bytes = data.bytes[at.unit];
    const text = (count) => words[count === 1 ? "peak-one" : "peak"].replace("{count}", count).replace("{size}", size(count * bytes));
    answer(figure, "exposed", words["of-step"].replace("{exposed}", exposed).replace("{end}", end)
      .replace("{share}", percent(exposed / end)));
    answer(figure, "whole", text(peak(memory.filter(({ kind }) => kind === "parameters"))));
    answer(figure, "both", text(peak(memory)));
    answer(figure, "sent", size(wire.length * bytes * (at.ranks - 1) / at.ranks));
    const spans = [...wire, ...computing];
    const times = [...new Set([0, end, ...spans.flatMap((span) => [span.start, span.end])])]
      .sort((a, b) => a - b);
    shown = [step, times];
    restart(times.length - 1, times.length - 1);
    return at.guard === "fsdp2" && at.backward_prefetch !== "pre" ?
      [["backward_prefetch", words.always, true]] : [];
  }

  let shown = null;
  const figure = document.querySelector('figure[data-figure="fsdp"]');
  const { words } = JSON.parse(figure.querySelector("script").textContent);
  const restart = player(figure, words, (moment) =>
    show(figure, shown[0], shown[1][moment], words));
  const turned = (name, values) => (name === "guard" && values.guard === "fsdp2" ?
    { backward_prefetch: "pre" } : {});
  play("fsdp", draw, turned, true);
})();
