/* The account of a rank's memory, as shardlab.proofs.formulas.memory makes it: same terms, same sums. */
(function () {
  "use strict";

  const { play, size } = window.figures;
  const KINDS = ["weight", "gradient", "optimizer", "activation"];

  function elements(term, at) {
    const letters = {
      l: at.layers / at.stages, h: at.hidden, a: at.heads, s: at.sequence, b: at.micro_batch,
      v: at.vocabulary, e: at.experts, k: at.top_k,
    };
    const cut = {
      always: at.tensor, sequence: at.sequence_parallel ? at.tensor : 1, expert: at.expert, never: 1,
    }[term.cut];
    return [...term.of].reduce((all, letter) => all * letters[letter], term.number) / cut;
  }

  function state({ terms, recipes }, at) {
    const layers = at.experts ? terms.expertParameters : terms.denseParameters;
    const parts = [...terms.parameters, ...layers, ...(at.stages === 1 ? terms.finalNorm : [])];
    const count = (ofExperts) => parts.filter(({ cut }) => (cut === "expert") === ofExperts)
      .reduce((sum, term) => sum + elements(term, at), 0);
    const replicas = at.data * at.context;
    const rows = [
      ["state", count(false), replicas], ["experts", count(true), at.tensor * replicas / at.expert],
    ];
    return [["weight", 3], ["gradient", 2], ["optimizer", 1]].flatMap(([kind, stage]) =>
      rows.map(([row, parameters, copies]) => [`${kind}/${row}`,
        recipes[at.recipe][kind] * parameters / (at.zero >= stage ? copies : 1)]));
  }

  /* Of how many micro-batches the first stage holds all its layers, and the first chunk. */
  function alive({ micro_batches: m, stages: p, chunks: v }) {
    if (v === 1 || p === 1) return [Math.min(m, p), Math.min(m, p)];
    return [Math.min(m * v, 2 * (p - 1) + (v - 1) * Math.min(m, p) + 1) / v, Math.min(m, 2 * p)];
  }

  function activations({ terms, recipes }, at) {
    const [live, first] = alive(at);
    const layers = live * at.layers / at.stages;
    const layer = [...terms.attention, ...(at.experts ? terms.experts : terms.dense)];
    const bytes = (term, times) =>
      (term.width || recipes[at.recipe].activation) * elements(term, at) * times / at.context;
    const [stored, recomputed] = {
      none: [[...layer, ...terms.core], []],
      selective: [layer, terms.core],
      full: [terms.checkpoint, [...layer, ...terms.core]],
    }[at.recompute];
    const storedOnce = [...terms.first, ...(at.stages === 1 ? terms.last : [])];
    const line = (times) => (term) => [`activation/${term.key}`, bytes(term, times)];
    const recomputedBytes = recomputed.reduce((sum, term) => sum + bytes(term, 1), 0);
    return [
      ...stored.map(line(layers)), ["activation/recomputed", recomputedBytes],
      ...storedOnce.map(line(first)),
    ];
  }

  function warnings(at, words) {
    const ranks = at.tensor * at.context * at.data;
    const pieces = at.stages * at.chunks;
    const cut = at.context * (at.sequence_parallel ? at.tensor : 1);
    const uneven = [
      [at.heads, at.tensor, words["not-heads"]], [at.layers, pieces, words["not-layers"]],
      [at.sequence, cut, words["not-sequence"]],
      ...(at.experts ? [
        [at.experts, at.expert, words["not-experts"]], [ranks, at.expert, words["not-ranks"]],
      ] : []),
    ];
    const refused = [
      [at.chunks > 1 && (at.stages === 1 || (at.micro_batches > at.stages &&
        at.micro_batches % at.stages)), words["not-interleaved"]],
      [at.experts && at.tensor > 1 && !at.sequence_parallel, words["not-routed"]],
      [at.experts && at.top_k > at.experts, words["not-top"]],
    ];
    return [
      ...uneven.filter(([whole, parts]) => whole % parts).map(([whole, parts, text]) =>
        text.replace("{parts}", parts).replace("{whole}", whole)),
      ...refused.filter(([wrong]) => wrong).map(([, text]) => text),
    ];
  }

  function draw(figure, at, data) {
    const lines = new Map([...state(data, at), ...activations(data, at)]);
    const sums = Object.fromEntries(KINDS.map((kind) => [kind, 0]));
    for (const [key, bytes] of lines) sums[key.split("/")[0]] += bytes;
    const whole = KINDS.reduce((sum, kind) => sum + sums[kind], 0);
    for (const row of figure.querySelectorAll("[data-line]")) {
      const bytes = lines.get(row.dataset.line) || 0;
      const cell = row.querySelector(".play-bytes");
      row.hidden = !bytes;
      cell.dataset.bytes = bytes;
      cell.textContent = size(bytes);
    }
    for (const kind of KINDS) {
      figure.querySelector(`[data-sum="${kind}"]`).textContent = size(sums[kind]);
      figure.querySelector(`[data-kind="${kind}"]`).style.width = `${100 * sums[kind] / whole}%`;
    }
    figure.querySelector('[data-sum="whole"]').textContent = size(whole);
    const warning = figure.querySelector(".play-warning");
    warning.textContent = warnings(at, data.words).join(" ");
    warning.hidden = !warning.textContent;
  }

  const turned = (name, values, data) => (name === "model" ? data.models[values.model] : {});
  play("memory", draw, turned);
})();
