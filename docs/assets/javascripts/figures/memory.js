/* The account of a rank's memory, as shardlab.proofs.formulas.memory makes it: same terms, same sums. */
(function () {
  "use strict";

  const { play, size } = window.figures;
  const KINDS = ["weight", "gradient", "optimizer", "activation"];

  function elements(term, at) {
    const letters = {
      l: at.layers / at.stages, h: at.hidden, a: at.heads, s: at.sequence, b: at.micro_batch,
      v: at.vocabulary,
    };
    const cut = term.cut === "always" || (term.cut === "sequence" && at.sequence_parallel);
    return [...term.of].reduce((all, letter) => all * letters[letter], term.number) /
      (cut ? at.tensor : 1);
  }

  function state({ terms, recipes }, at) {
    const held = [...terms.parameters, ...(at.stages === 1 ? terms.finalNorm : [])];
    const parameters = held.reduce((sum, term) => sum + elements(term, at), 0);
    return [["weight", 3], ["gradient", 2], ["optimizer", 1]].map(([kind, stage]) =>
      [`${kind}/state`, recipes[at.recipe][kind] * parameters / (at.zero >= stage ? at.data : 1)]);
  }

  function activations({ terms, recipes }, at) {
    const live = Math.min(at.stages, at.micro_batches);
    const layers = live * at.layers / at.stages;
    const bytes = (term, times) =>
      (term.width || recipes[at.recipe].activation) * elements(term, at) * times;
    const [kept, again] = {
      none: [[...terms.layer, ...terms.core], []],
      selective: [terms.layer, terms.core],
      full: [terms.checkpoint, [...terms.layer, ...terms.core]],
    }[at.recompute];
    const once = [...terms.first, ...(at.stages === 1 ? terms.last : [])];
    const line = (times) => (term) => [`activation/${term.key}`, bytes(term, times)];
    const anew = again.reduce((sum, term) => sum + bytes(term, 1), 0);
    return [...kept.map(line(layers)), ["activation/recomputed", anew], ...once.map(line(live))];
  }

  function warnings(at, words) {
    const uneven = [
      [at.heads, at.tensor, words["not-heads"]], [at.layers, at.stages, words["not-layers"]],
      ...(at.sequence_parallel ? [[at.sequence, at.tensor, words["not-sequence"]]] : []),
    ];
    return uneven.filter(([whole, parts]) => whole % parts).map(([whole, parts, text]) =>
      text.replace("{parts}", parts).replace("{whole}", whole));
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
