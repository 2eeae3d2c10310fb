/* What of a model's state a rank holds in each stage of ZeRO, as tools/sitelab/figures/zero.py counts
 * it: a kind is cut into as many pieces as there are ranks from its first stage on. */
(function () {
  "use strict";

  const { play, size, answer } = window.figures;

  function draw(figure, { recipe, ranks, parameters }, { widths, kinds }) {
    const whole = Object.entries(kinds).map(([kind, least]) =>
      ({ kind, least, bytes: parameters * widths[recipe][kind] }));
    const sum = whole.reduce((all, { bytes }) => all + bytes, 0);
    figure.querySelector(".zero").style.setProperty("--ranks", ranks);
    figure.querySelectorAll(".zero-state").forEach((row, stage) => {
      const held = whole.map(({ kind, least, bytes }) => {
        const share = stage >= least ? 1 / ranks : 1;
        const box = row.querySelector(`[data-of="${kind}"]`);
        box.style.width = `${100 * bytes / sum}%`;
        box.firstChild.style.width = `${100 * share}%`;
        return bytes * share;
      });
      answer(figure, `stage-${stage}`, size(held.reduce((all, bytes) => all + bytes, 0)));
    });
    for (const { kind, bytes } of whole) {
      figure.querySelector(`[data-sum="${kind}"]`).textContent = size(bytes);
    }
  }

  play("zero", draw);
})();
